"""The tool `git_worktree`: more work trees of a repository, below `.worktrees`."""

from __future__ import annotations

import os
import re
from typing import Any

from fairlead_tools.runner.confinement.workspace_root import Root, ToolFailedError
from fairlead_tools.runner.outcome import CallOutcome, done
from fairlead_tools.runner.tools.arguments import Arguments
from fairlead_tools.runner.tools.files import printable
from fairlead_tools.runner.tools.repository import Repository, revision

FOLDER = ".worktrees"
TIMEOUT_S = 110.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def worktree(root: Root, arguments: Arguments) -> CallOutcome:
    """A work tree was made or removed, or all are listed."""
    action = arguments.text("action")
    if action not in ("add", "list", "remove"):
        raise ToolFailedError(f"action: must be add, list or remove, got {action!r}")
    repository = Repository(root, arguments.text("path", "."))
    if action == "list":
        return _list(repository)
    name = arguments.text("name")
    if not _NAME.fullmatch(name) or name.endswith((".lock", ".")) or ".." in name:
        raise ToolFailedError(f"name: must match {_NAME.pattern}, got {name[:100]!r}")
    folder = os.path.join(repository.top, FOLDER)
    if os.path.islink(folder) or os.path.islink(os.path.join(folder, name)):
        raise ToolFailedError(f"{FOLDER}: must not be a link")
    path = os.path.join(folder, name)
    return (_add if action == "add" else _remove)(repository, arguments, name, path)


def _add(repository: Repository, arguments: Arguments, name: str, path: str) -> CallOutcome:
    if os.path.lexists(path):
        raise ToolFailedError(f"name: {FOLDER}/{name} is there already")
    branch = revision(arguments, "branch") or name
    base = revision(arguments, "base")
    if repository.run("check-ref-format", f"refs/heads/{branch}", may_fail=True).code:
        raise ToolFailedError(f"branch: is not a valid branch name: {branch!r}")
    known = repository.run("show-ref", "--verify", "--quiet", f"refs/heads/{branch}", may_fail=True).code == 0
    if known and base:
        raise ToolFailedError(f"base: the branch {branch!r} is there already; leave it out")
    what = ["--", path, branch] if known else ["-b", branch, "--", path, base or "HEAD"]
    repository.run("worktree", "add", "--quiet", *what, timeout_s=TIMEOUT_S, variables=_WRITES)
    _ignore(repository)
    where = repository.relative(path)
    return done(f"Made {where} on branch {branch}.", path=where, branch=branch, name=name)


def _remove(repository: Repository, arguments: Arguments, name: str, path: str) -> CallOutcome:
    force = ["--force"] if arguments.flag("force") else []
    repository.run("worktree", "remove", *force, "--", path, timeout_s=TIMEOUT_S, variables=_WRITES)
    where = repository.relative(path)
    return done(f"Removed {where}. Its branch is still there.", path=where, name=name)


_WRITES = {"GIT_OPTIONAL_LOCKS": "1"}


def _list(repository: Repository) -> CallOutcome:
    answer = repository.run("worktree", "list", "--porcelain")
    rows: list[dict[str, Any]] = []
    for part in answer.text.strip().split("\n\n"):
        facts = dict(line.partition(" ")[::2] for line in part.splitlines())
        if "worktree" in facts:
            branch = facts.get("branch", "").replace("refs/heads/", "", 1)
            rows.append(
                {
                    "path": repository.relative(facts["worktree"]),
                    "branch": branch,
                    "commit": facts.get("HEAD", ""),
                }
            )
    text = "\n".join(f"{printable(each['path'])}  {each['branch'] or each['commit'][:12]}" for each in rows)
    return done(text or "None.", worktrees=rows)


def _ignore(repository: Repository) -> None:
    """Keep the folder out of what `git status` shows, for everyone who works here but in no commit."""
    path = os.path.join(repository.common_dir, "info", "exclude")
    line = f"/{FOLDER}/"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "r+", encoding="utf-8", errors="replace") as file:
            text = file.read(1_000_000)
            if line not in text.splitlines():
                file.write(("" if not text or text.endswith("\n") else "\n") + line + "\n")
    except OSError:
        return  # it is shown, then
