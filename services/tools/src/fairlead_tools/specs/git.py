"""Git and pull requests."""

from fairlead_common.messages import ToolSpec
from fairlead_tools.specs.schema import FLAG, PATH, TEXT, Schema, form, reader, texts, whole

_GROUP = "git"
_REPOSITORY: Schema = {**PATH, "description": "Folder of the repository; the workspace by default."}
_REVISION: Schema = {"type": "string", "minLength": 1, "maxLength": 250}

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
                "revision": {**_REVISION, "description": "A commit, or a range such as `main...HEAD`."},
                "files": texts(100),
                "context": whole(0, 100),
            }
        ),
        "revision",
    ),
    reader(
        "git_log",
        _GROUP,
        "Commits, newest first.",
        form({"path": _REPOSITORY, "revision": _REVISION, "files": texts(100), "limit": whole(1, 200)}),
        "revision",
    ),
    ToolSpec(
        name="git_commit",
        description="Commit the given files, or all changes. Hooks and signing are left out.",
        parameters=form({"path": _REPOSITORY, "message": TEXT, "files": texts(500)}, "message"),
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
                "remote": {**_REVISION, "description": "`origin` by default."},
                "branch": _REVISION,
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
                "base": {**_REVISION, "description": "Branch to merge into; the remote's default."},
                "branch": _REVISION,
                "remote": _REVISION,
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
                "name": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
                "branch": {**_REVISION, "description": "Made if it is missing; `name` by default."},
                "base": _REVISION,
                "force": {"type": "boolean", "description": "Remove it with its changes."},
            },
            "action",
        ),
        shows="name",
        group=_GROUP,
    ),
]
