"""May this call run? The answer for a mode, the rules, what the session has read, and what people granted.

Rules over commands save questions; they do not contain a hostile program. The sandbox does.
"""

from collections.abc import Collection
from typing import Literal, NamedTuple

from fairlead_agent.policy.approval_scopes import SHELL, command_key, keys
from fairlead_agent.policy.layers import Layers
from fairlead_agent.policy.sensitive_words import acts_later, files, sensitive_command
from fairlead_agent.policy.taint import FETCH, NamedBy, carries
from fairlead_common.policy.always_ask import never_automatic, typed
from fairlead_common.policy.always_ask_git import FORCED, is_forced_push
from fairlead_common.policy.programs import fetches
from fairlead_common.policy.rules import Subject, command_allowed, names, raw_paths, runs_elsewhere, subject
from fairlead_common.policy.sensitive_paths import secret
from fairlead_common.policy.shell_words import read
from fairlead_common.policy.workspace_paths import normal
from fairlead_common.protocol.content import TrustFlag
from fairlead_common.protocol.messages import SandboxKind, ToolSpec

_CONFINED = ("docker", "bubblewrap")


class Verdict(NamedTuple):
    """What to do with a call, and why, in words for people.

    Fields:
        lasting: an answer may hold for more than this one call.
    """

    action: Literal["allow", "ask", "deny"]
    why: str
    lasting: bool = False


class Circumstances(NamedTuple):
    """What counts beside the call itself.

    Fields:
        networked: commands of the sandbox reach a network.
        untrusted, private, secret: what the session has read so far.
        taint: whether that counts, and how much.
        named_by: who named the address that the call would read.
        followed: names of files that unattended runs follow, beside those that always count.
        narrowed: what makes the session narrower than its profile, in words; empty when nothing does.
        root: absolute path of the workspace, as its file tools spell it; empty when that is not known.
        granted: keys, as `approval_scopes.keys` makes them, of what was allowed for longer than once.
    """

    mode: str = "ask"
    layers: Layers = Layers()
    sandbox: SandboxKind = "local"
    networked: bool = True
    workspace: str = ""
    untrusted: bool = False
    private: bool = False
    secret: bool = False
    taint: bool | Literal["strict"] = True
    named_by: NamedBy = ""
    granted: Collection[str] = ()
    root: str = ""
    narrowed: str = ""
    followed: Collection[str] = ()


def judge(spec: ToolSpec, arguments: dict[str, object], at: Circumstances) -> Verdict:
    """The verdict: deny wins over ask, ask over allow."""
    about = subject(spec, arguments, at.root)
    if why := at.layers.denies(about):
        return Verdict("deny", f"{why} denies it{outside_hint(about)}")
    if at.mode == "safe" and not spec.read_only:
        return Verdict("deny", f"mode safe allows reading only, and {spec.name} changes things")
    if why := _must_be_seen(spec, arguments, about, at):
        return Verdict("ask", why)
    if spec.read_only:
        return Verdict("allow", "it only reads")
    if at.mode == "allow-all":
        return Verdict("allow", "mode allow-all")
    if why := _allowed(spec, arguments, about, at):
        return Verdict("allow", why)
    if is_runtime(spec) and at.sandbox in _CONFINED and not at.networked:
        return Verdict("allow", f"it runs in a sandbox ({at.sandbox}) without network")
    plain = about.shell.problem if about.shell else ""
    hint = f"; no rule can allow the command, for {plain}" if plain else ""
    return Verdict("ask", f"mode ask: {spec.name} changes things{hint}", lasting=True)


def outside_hint(about: Subject) -> str:
    """Why a rule about other paths may have decided, in words for the model."""
    return "; rules about paths cover every path outside of the workspace" if about.outside else ""


def is_runtime(spec: ToolSpec) -> bool:
    """Whether it runs programs in the sandbox."""
    return spec.group == "runtime" or spec.name == "bash"


def effects(spec: ToolSpec, arguments: dict[str, object], *, networked: bool) -> list[TrustFlag]:
    """What this call does to the trust of its session: what its tool says, and what a command can do."""
    found: set[TrustFlag] = set(spec.flags)
    if is_runtime(spec):
        found.add("private")
        if networked:
            found.add("external")
            shell = subject(spec, arguments).shell
            if shell is not None and any(fetches(words) for words in shell.commands):
                found.add("untrusted")
    return sorted(found)


def names_secret(spec: ToolSpec, arguments: dict[str, object], root: str = "") -> bool:
    """Whether it names what is likely a secret: who allows the call allows it to show that."""
    about = subject(spec, arguments, root)
    if about.shell is not None:
        return any(secret(file) for file in files(about.shell)) or any(map(secret, about.shell.writes))
    return any(secret(normal(path, root) or path) for path in _paths(arguments))


# -- what a person has to see in every mode --------------------------------------


def _must_be_seen(spec: ToolSpec, arguments: dict[str, object], about: Subject, at: Circumstances) -> str:
    if is_forced_push(spec.name, arguments):
        return f"this call is never made without a person: {FORCED}"
    for text in typed(arguments) if is_runtime(spec) else ():
        if reason := never_automatic(text, read(text)):
            return f"this input is never sent without a person: {reason}"
    if about.shell is not None:
        command = str(arguments["command"])
        if reason := never_automatic(command, about.shell):
            return f"this command is never allowed without a person: {reason}"
        if reason := sensitive_command(about.shell, at.followed):
            return reason
    elif reason := _sensitive_path(spec, arguments, about, at):
        return reason
    if reason := _tainted(spec, arguments, about, at):
        return reason
    if at.narrowed and spec.group == "platform" and not spec.read_only:
        return f"this session has {at.narrowed}, and what it leaves behind here would act without that"
    return at.layers.asks(about)


def _tainted(spec: ToolSpec, arguments: dict[str, object], about: Subject, at: Circumstances) -> str:
    if not at.taint:
        return ""
    flags = effects(spec, arguments, networked=at.networked)
    shell = about.shell if is_runtime(spec) else None
    is_out = carries(spec, shell, flags, at.named_by, trusting="person")
    if at.secret and is_out:
        return (
            "this session has read what is likely a secret, and this call reaches outside: it could carry it"
        )
    if at.private and at.taint == "strict" and is_out:
        return "this session has read what is private, and this call reaches outside: it could carry it"
    is_out = carries(spec, shell, flags, at.named_by, trusting="search")
    if at.untrusted and at.private and (is_out or (shell is not None and "external" in flags)):
        return (
            "this session has read what strangers wrote and what is private, and this call reaches outside: "
            "it could carry one to the other"
        )
    if at.private and is_out and spec.name == FETCH:
        return (
            "this session has read what is private, and neither a person nor a web search named this "
            "address: something private could be in it"
        )
    if not at.untrusted:
        return ""
    if spec.group == "platform" and not spec.read_only:
        return (
            "this session has read what strangers wrote, and this call would act later, with nobody looking"
        )
    if is_runtime(spec) and not spec.read_only and at.sandbox not in _CONFINED:
        return "this session has read what strangers wrote, and the command would run without a sandbox"
    return ""


def _sensitive_path(spec: ToolSpec, arguments: dict[str, object], about: Subject, at: Circumstances) -> str:
    """Why one of its paths has to be seen. A rule that names exactly this path counts as seen."""
    named = {
        "/".join(rule.words)
        for rule in at.layers.allowing
        if rule.kind == "path" and names(rule, about) and not any("*" in word for word in rule.words)
    }
    for given in _paths(arguments):
        path = normal(given, at.root) or given
        if path in named:
            continue
        if spec.read_only and (reason := secret(path)):
            return f"{path!r} is likely a secret: {reason}"
        if not spec.read_only and (reason := acts_later(path, at.followed) or secret(path)):
            return f"{path!r} is not changed without a person: {reason}"
    return ""


def _paths(arguments: dict[str, object]) -> list[str]:
    """What it names; the files that a search is limited to may be a pattern."""
    pattern = arguments.get("glob")
    return [*raw_paths(arguments), *([pattern] if isinstance(pattern, str) else [])]


# -- what rules and people allow ---------------------------------------------------


def _allowed(spec: ToolSpec, arguments: dict[str, object], about: Subject, at: Circumstances) -> str:
    if rules := at.layers.allows(about):
        return f"allowed by {rules}"
    if about.shell is not None and (why := _commands_allowed(spec, about, at)):
        return why
    wanted = keys(spec.name, spec.group, arguments, at.workspace, at.sandbox)
    return "it was granted before" if wanted and all(key in at.granted for key in wanted) else ""


def _commands_allowed(spec: ToolSpec, about: Subject, at: Circumstances) -> str:
    """Whether of every command either a rule or a grant says yes."""
    shell = about.shell
    if shell is None or shell.problem or runs_elsewhere(shell.commands, at.root):
        return ""
    rules = [rule for rule in at.layers.allowing if names(rule, about)]
    for words in shell.commands:
        granted = spec.name == SHELL and command_key(SHELL, words, at.workspace, at.sandbox) in at.granted
        if not granted and not command_allowed(rules, words):
            return ""
    return "it was granted before"
