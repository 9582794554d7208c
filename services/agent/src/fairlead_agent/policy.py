"""May this call run? The answer for a mode, a profile and what people granted before.

Rules over commands save questions; they do not contain a hostile program. The sandbox does.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from fairlead_common.config import AgentConfig
from fairlead_common.entries import ApprovalRequestEntry
from fairlead_common.messages import ToolSpec

# What a person must see each time, whatever was granted before.
_NEVER_AUTOMATIC = re.compile(
    r"\brm\s+(-\w*\s+)*-\w*[rf]\w*\s+(-\w+\s+)*(/|~|\$HOME)(\s|/?\*|$)"
    r"|\bmkfs\b|\bdd\s.*\bof=/dev/|\bshutdown\b|\breboot\b|:\(\)\s*\{|>\s*/dev/[sn][dv]"
)


class Verdict(NamedTuple):
    """What to do with a call, and why, in words for people."""

    action: Literal["allow", "ask", "deny"]
    why: str


def judge(
    spec: ToolSpec,
    arguments: dict[str, object],
    *,
    mode: str,
    profile: AgentConfig,
    granted: Iterable[str],
) -> Verdict:
    """The verdict. Deny wins over everything, a never-automatic command over every grant.

    Args:
        granted: keys, as `grant_key` makes them, of what was allowed for longer than once.
    """
    if spec.name in profile.deny:
        return Verdict("deny", f"the profile denies {spec.name}")
    if spec.read_only:
        return Verdict("allow", "it only reads")
    if mode == "safe":
        return Verdict("deny", f"mode safe allows reading only, and {spec.name} changes things")
    command = arguments.get("command")
    if isinstance(command, str) and _NEVER_AUTOMATIC.search(command):
        return Verdict("ask", "this command is never allowed without a person")
    if mode == "allow-all":
        return Verdict("allow", "mode allow-all")
    if spec.name in profile.allow:
        return Verdict("allow", f"the profile allows {spec.name}")
    if grant_key(spec.name, arguments) in granted:
        return Verdict("allow", "it was granted before")
    return Verdict("ask", f"mode ask: {spec.name} changes things")


def grant_key(tool: str, arguments: dict[str, object]) -> str:
    """What `session` and `always` grant: this exact command, or any call of another tool."""
    command = arguments.get("command")
    subject = f"{tool}\0{command}" if isinstance(command, str) else tool
    return hashlib.sha256(subject.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def grant_keys(requests: Iterable[ApprovalRequestEntry]) -> set[str]:
    """The keys of what was granted in this session."""
    return {grant_key(request.tool, request.arguments) for request in requests}


def shown_hash(session: str, tool: str, arguments: dict[str, object], host: str, workspace: str) -> str:
    """SHA-256 over all that a person is shown before they decide."""
    shown = [session, tool, arguments, host, workspace]
    return hashlib.sha256(msgspec.json.encode(shown, order="deterministic")).hexdigest()
