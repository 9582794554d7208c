"""Where the calls of a session run: in which sandbox, on which host, in which workspace."""

from typing import NamedTuple

from fairlead_common.config import AgentConfig
from fairlead_common.messages import SandboxKind, WorkspaceAccess
from fairlead_common.placement import effective_sandbox


class Boundary(NamedTuple):
    """The sandbox of a session's calls; the fields are those of `ToolCall`."""

    sandbox: SandboxKind
    scope: str
    access: WorkspaceAccess
    remote: str


def boundary(session: str, agent: str, profile: AgentConfig, wish: str = "") -> Boundary:
    """What the profile and the session's own wish come to. A wish for less than the profile demands is void."""
    choice = profile.sandbox
    scope = {"session": f"session-{session}", "agent": f"agent-{agent}", "shared": "shared"}[choice.scope]
    sandbox = effective_sandbox(choice, session, wish)
    return Boundary(sandbox, scope, choice.workspace, choice.remote if sandbox == "ssh" else "")


def described(within: Boundary) -> str:
    """The boundary in one sentence, for the model."""
    where = {
        "local": "on the host, as the user that Fairlead runs as",
        "bubblewrap": "in a sandbox of namespaces (bubblewrap), where the system is read-only",
        "docker": "in a container, apart from the host",
        "ssh": f"on the remote machine {within.remote}",
    }[within.sandbox]
    limit = {
        "none": "; the workspace is out of reach",
        "ro": "; the workspace can only be read",
        "rw": "",
    }
    return f"Commands run {where}{limit[within.access]}."
