"""The tool `git_push`."""

from __future__ import annotations

from fairlead_tools.runner.confinement.workspace_root import Root, ToolFailedError
from fairlead_tools.runner.outcome import CallOutcome, done, failed, unknown
from fairlead_tools.runner.tools import remotes
from fairlead_tools.runner.tools.arguments import Arguments
from fairlead_tools.runner.tools.repository import GitFailedError, Repository

TIMEOUT_S = 110.0
LOOK_S = 20.0


def push(root: Root, arguments: Arguments) -> CallOutcome:
    """The branch is on the remote as it is here; or it is known not to be; or no one knows."""
    repository = Repository(root, arguments.text("path", "."))
    branch = remotes.current_branch(repository, arguments)
    remote = remotes.find_remote(repository, arguments, branch)
    repository.go_abroad(remote.settings(remotes.access()))
    commit = repository.run("rev-parse", "-q", "--verify", f"refs/heads/{branch}", may_fail=True).text.strip()
    if not commit:
        raise ToolFailedError(f"branch: there is no {branch!r}")
    options = ["--porcelain", "--no-verify", "--no-signed", "--recurse-submodules=no", "--set-upstream"]
    options += ["--force-with-lease"] if arguments.flag("force_with_lease") else []
    facts = {"remote": remote.name, "url": remote.url, "branch": branch, "commit": commit}
    try:
        answer = repository.run(
            "push", *options, "--", remote.name, f"refs/heads/{branch}:refs/heads/{branch}",
            variables={**remotes.ALLOWED, "GIT_OPTIONAL_LOCKS": "1"}, timeout_s=TIMEOUT_S, may_fail=True,
        )  # fmt: skip
        said, is_done = f"{answer.text}\n{answer.errors}", answer.code == 0
        is_refused = "\n!" in f"\n{answer.text}"
    except GitFailedError as error:
        said, is_done, is_refused = str(error), False, False
    text = f"Pushed {branch} ({commit[:12]}) to {remote.name}."
    if is_done:
        return done(text, **facts)
    said = repository.hide(said.strip())[:4_000]
    if is_refused:
        return failed(f"The remote refused:\n{said}")
    there = _there(repository, remote.name, branch)
    if there == commit:
        return done(text, **facts)
    if there is not None:
        return failed(f"Not pushed:\n{said}")
    if any(words in said for words in _NEVER_REACHED):
        return failed(f"The remote cannot be reached:\n{said}")
    return unknown(f"The push was cut off, and the remote cannot be asked:\n{said}\n")


_NEVER_REACHED = (
    "Could not resolve",
    "Failed to connect",
    "Authentication failed",
    "could not read Username",
    "Permission denied",
    "Host key verification failed",
    "not found",
    "The requested URL returned error: 40",
    "Connection refused",
)


def _there(repository: Repository, remote: str, branch: str) -> str | None:
    """The commit that the remote has; empty: no such branch; None: it does not say."""
    try:
        answer = repository.run(
            "ls-remote", "--", remote, f"refs/heads/{branch}",
            variables=remotes.ALLOWED, timeout_s=LOOK_S, may_fail=True,
        )  # fmt: skip
    except GitFailedError:
        return None
    return None if answer.code else answer.text.partition("\t")[0].strip()
