"""Git and pull requests."""

from fairlead_common.protocol.messages import ToolSpec
from fairlead_tools.specs.schema import FLAG, TEXT, Schema, form, reader, texts, whole

_GROUP = "git"
_REPOSITORY: Schema = {**TEXT, "description": "Folder of the repository."}

GIT = [
    reader("git_status", _GROUP, "Branch and changed files.", form({"path": _REPOSITORY}), "path"),
    reader(
        "git_diff",
        _GROUP,
        "What changed and is not staged, or `staged`, or between revisions.",
        form(
            {
                "path": _REPOSITORY,
                "staged": FLAG,
                "revision": {**TEXT, "description": "A commit, or a range such as `main...HEAD`."},
                "files": texts(),
                "context": whole(0, 100),
            }
        ),
        "revision",
    ),
    reader(
        "git_log",
        _GROUP,
        "Commits, newest first.",
        form({"path": _REPOSITORY, "revision": TEXT, "files": texts(), "limit": whole(1, 200)}),
        "revision",
    ),
    ToolSpec(
        name="git_commit",
        description="Commit the given files, or all changes. Hooks and signing are left out.",
        parameters=form({"path": _REPOSITORY, "message": TEXT, "files": texts()}, "message"),
        shows="message",
        group=_GROUP,
        flags=["private"],
    ),
    ToolSpec(
        name="git_push",
        description="Push a branch, the current one by default.",
        parameters=form(
            {
                "path": _REPOSITORY,
                "remote": {**TEXT, "description": "`origin` by default."},
                "branch": TEXT,
                "force_with_lease": FLAG,
            }
        ),
        shows="branch",
        group=_GROUP,
        flags=["private", "external"],
    ),
    ToolSpec(
        name="create_pr",
        description="Open a pull (merge) request for a branch that was pushed.",
        parameters=form(
            {
                "path": _REPOSITORY,
                "title": TEXT,
                "body": {"type": "string"},
                "base": {**TEXT, "description": "Branch to merge into; the remote's default."},
                "branch": TEXT,
                "remote": TEXT,
                "draft": FLAG,
            },
            "title",
        ),
        shows="title",
        group=_GROUP,
        flags=["private", "external"],
    ),
    ToolSpec(
        name="git_worktree",
        description="Work on a branch beside the others, in `.worktrees/<name>`.",
        parameters=form(
            {
                "path": _REPOSITORY,
                "action": {"enum": ["add", "list", "remove"]},
                "name": TEXT,
                "branch": {**TEXT, "description": "Made if it is missing; `name` by default."},
                "base": TEXT,
                "force": {"type": "boolean", "description": "Remove it with its changes."},
            },
            "action",
        ),
        shows="name",
        group=_GROUP,
    ),
]
