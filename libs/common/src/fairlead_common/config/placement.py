"""Where calls may run: which sandbox a session gets, and which host suits. No I/O, no clock."""

from collections.abc import Iterable, Mapping
from typing import Final

from fairlead_common.config import SandboxChoice
from fairlead_common.protocol.messages import ExecutorInfo, SandboxKind, ToolCall

DEFAULT_POOL: Final = "default"
BOX_WORKSPACE: Final = "/workspace"  # where a container or namespace has it

_ORDER: Final = ("local", "bubblewrap", "docker")  # each at least as strong as those before it
_MAIN: Final = "main"


def demanded_sandbox(choice: SandboxChoice, session: str) -> SandboxKind:
    """The sandbox that the profile wants for this session."""
    return "local" if choice.when == "non-main" and session == _MAIN else choice.kind


def sandbox_problem(choice: SandboxChoice, session: str, wish: str) -> str:
    """Why a session may not have the sandbox `wish`, for people; empty when it may.

    A session may be confined more than its profile demands, never less. `ssh` is another machine, and so
    neither stronger nor weaker than the rest: only a profile can choose it.
    """
    demanded = demanded_sandbox(choice, session)
    if wish == demanded:
        return ""
    if wish not in _ORDER or demanded not in _ORDER:
        return f"the profile wants {demanded!r}, and {wish!r} cannot stand in for it"
    if _ORDER.index(wish) < _ORDER.index(demanded):
        return f"must not be weaker than {demanded!r}, which the profile demands; got {wish!r}"
    return ""


def is_weaker(sandbox: str, than: str) -> bool:
    """Whether a sandbox confines less than another; one that cannot be compared counts as weaker."""
    if sandbox == than:
        return False
    known = sandbox in _ORDER and than in _ORDER
    return _ORDER.index(sandbox) < _ORDER.index(than) if known else True


def effective_sandbox(choice: SandboxChoice, session: str, wish: str) -> SandboxKind:
    """The sandbox that calls of a session get; a wish that may not be granted counts as none."""
    if wish in _ORDER and not sandbox_problem(choice, session, wish):
        return wish  # type: ignore[return-value] # one of _ORDER
    return demanded_sandbox(choice, session)


def suits(info: ExecutorInfo, pool: str, labels: Mapping[str, str]) -> bool:
    """Whether an executor belongs to the pool (empty: `default`) and has all labels."""
    return info.pool == (pool or DEFAULT_POOL) and labels.items() <= info.labels.items()


def choose_host(infos: Iterable[ExecutorInfo], sandbox: str = "", *, besides: str = "") -> str | None:
    """The host for something new: the one with the fewest running calls to capacity.

    Executors that drain do not count. Hosts of equal load are taken by name, so that all who ask at once
    agree.

    Args:
        sandbox: that it has to offer; empty: any.
        besides: a host that does not count.
    """
    loads: dict[str, tuple[int, int]] = {}
    for info in infos:
        offers = not sandbox or sandbox in info.sandboxes
        if offers and not info.draining and info.host != besides:
            running, capacity = loads.get(info.host, (0, 0))
            loads[info.host] = (running + info.running, capacity + max(1, info.capacity))
    return min(loads, key=lambda host: (loads[host][0] / loads[host][1], host), default=None)


def described_place(pool: str, labels: Mapping[str, str]) -> str:
    """`pool x with labels a=b`, for errors."""
    wanted = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
    return f"pool {pool or DEFAULT_POOL}" + (f" with labels {wanted}" if wanted else "")


def workspace_root(call: ToolCall, host: str, *, named: str, default: str) -> str:
    """The absolute path that file tools of the call have for its workspace; empty when nobody here knows.

    Args:
        named: folder of the named workspaces of the host. default: its workspace for calls that name none.
    """
    if call.sandbox in ("docker", "bubblewrap"):
        return BOX_WORKSPACE
    if call.workspace.startswith("/"):
        return call.workspace
    if call.sandbox == "ssh" or not named:
        return ""
    if call.workspace_kind != "folder":
        return f"{named}/.sessions/{host}/{call.workspace}"
    return f"{named}/{call.workspace}" if call.workspace else default
