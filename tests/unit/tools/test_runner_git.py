"""The git tools: what they say, what they do abroad, and that no repository makes them run its programs."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.outcomes import text_of
from tests.unit.tools.conftest import Client, Runner
from tests.unit.tools.git_server import TOKEN, GitServer, git_server

CLEAN = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "PATH": os.environ["PATH"]}
PERSON = {
    **{f"GIT_{role}_NAME": "Somebody" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "somebody@example.org" for role in ("AUTHOR", "COMMITTER")},
}


def git(folder: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder, env={**CLEAN, **PERSON}, capture_output=True, timeout=60, check=False, text=True,
    )  # fmt: skip
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.strip()


def make(folder: Path) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    git(folder, "init", "-q", "-b", "main")
    for name in ("a.txt", "b.txt", "c.bin"):
        (folder / name).write_text(f"{name}\n" * 3)
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


@pytest.fixture
def repository(runner: Runner) -> Path:
    return make(runner.workspace)


def test_status_tells_branch_and_changes(client: Client, repository: Path) -> None:
    (repository / "a.txt").write_text("other\n")
    git(repository, "mv", "b.txt", "moved here.txt")
    (repository / "new\nname").write_text("x")
    outcome = client.call("a", "git_status")
    assert text_of(outcome).splitlines() == [
        "On branch main", ".M a.txt", "R. moved here.txt (from b.txt)", "?? new\\nname"
    ]  # fmt: skip
    details = outcome["details"]
    assert (details["branch"], details["commit"]) == ("main", git(repository, "rev-parse", "HEAD"))
    assert [each["change"] for each in details["files"]] == ["modified", "renamed", "untracked"]
    assert "No such file" in text_of(client.call("b", "git_status", path="nowhere"))


def test_diff_shows_what_changed_staged_and_between_revisions(client: Client, repository: Path) -> None:
    (repository / "a.txt").write_text("a.txt\nother\na.txt\n")
    outcome = client.call("a", "git_diff")
    assert "-a.txt\n+other\n" in text_of(outcome)
    assert outcome["details"]["files"] == [{"path": "a.txt", "added": 1, "deleted": 1}]
    assert text_of(client.call("b", "git_diff", staged=True)) == "No differences."
    git(repository, "commit", "-qam", "second")
    assert "+other" in text_of(client.call("c", "git_diff", revision="HEAD~1..HEAD", files=["a.txt"]))
    assert text_of(client.call("d", "git_diff", revision="HEAD~1", files=["b.txt"])) == "No differences."


def test_log_lists_commits(client: Client, repository: Path) -> None:
    (repository / "a.txt").write_text("other\n")
    git(repository, "commit", "-qam", "second: subject")
    outcome = client.call("a", "git_log", limit=1)
    (only,) = outcome["details"]["commits"]
    assert (only["subject"], only["author"]) == ("second: subject", "Somebody")
    assert text_of(outcome).startswith(only["commit"][:12])


@pytest.mark.parametrize("value", ["--output=x", "-O/tmp/x", "HEAD; rm", "$(x)", "a b"])
def test_revision_cannot_be_an_option(client: Client, repository: Path, value: str) -> None:
    for number, tool in enumerate(("git_diff", "git_log")):
        outcome = client.call(f"a{number}", tool, revision=value)
        assert text_of(outcome).startswith("revision: is not a valid revision name")
    assert not (repository / "x").exists()


def test_commit_takes_all_changes_or_the_files_that_are_named(client: Client, repository: Path) -> None:
    (repository / "a.txt").write_text("other\n")
    (repository / "b.txt").unlink()
    (repository / "new").write_text("x\n")
    outcome = client.call("a", "git_commit", message="only new\n\nbody", files=["new"])
    assert outcome["status"] == "ok", outcome
    assert git(repository, "show", "--name-status", "--format=%B%an <%ae>", "HEAD").splitlines() == [
        "only new", "", "body", "Fairlead <fairlead@localhost>", "", "A\tnew"
    ]  # fmt: skip
    rest = client.call("b", "git_commit", message="the rest")
    assert rest["details"]["commit"] == git(repository, "rev-parse", "HEAD")
    assert git(repository, "status", "--porcelain") == ""
    assert "nothing to commit" in text_of(client.call("c", "git_commit", message="none"))


def test_commit_is_signed_with_the_persons_own_name(client: Client, runner: Runner, repository: Path) -> None:
    home = Path(runner.env["HOME"])
    (home / ".gitconfig").write_text("[user]\nname = Owner\n[core]\nhooksPath = /tmp\n")
    git(repository, "config", "user.email", "local@example.org")
    (repository / "new").write_text("x\n")
    client.call("a", "git_commit", message="m")
    assert git(repository, "log", "-1", "--format=%an <%ae>") == "Owner <local@example.org>"


def test_file_behind_a_filter_is_not_committed_wrongly(client: Client, repository: Path) -> None:
    (repository / ".gitattributes").write_text("*.bin filter=lfs\n")
    (repository / "c.bin").write_text("big\n")
    before = git(repository, "rev-parse", "HEAD")
    assert "the filter 'lfs'" in text_of(client.call("a", "git_commit", message="m"))
    assert git(repository, "rev-parse", "HEAD") == before


# -- hostile repositories ---------------------------------------------------------

HOOKS = ["pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-push", "post-checkout"]
HOOKS += ["reference-transaction", "post-index-change", "pre-auto-gc", "post-rewrite", "fsmonitor-watchman"]


def set_traps(folder: Path, marks: Path) -> None:
    """Configuration, hooks and attributes that leave a mark whenever one of them runs."""
    marks.mkdir(exist_ok=True)
    git_dir = folder / git(folder, "rev-parse", "--absolute-git-dir")

    def trap(name: str) -> str:
        return f"sh -c 'touch {marks}/{name}; cat' "

    settings = {
        "core.fsmonitor": trap("fsmonitor"), "core.pager": trap("pager"), "core.askPass": trap("askpass"),
        "core.sshCommand": trap("ssh"), "core.gitProxy": trap("gitproxy"), "core.editor": trap("editor"),
        "core.alternateRefsCommand": trap("alternate"), "sequence.editor": trap("sequence"),
        "pager.status": trap("pager-status"), "pager.log": trap("pager-log"),
        "pager.diff": trap("pager-diff"),
        "diff.external": trap("external"), "diff.x.command": trap("diff-command"),
        "diff.x.textconv": trap("textconv"), "filter.x.clean": trap("clean"),
        "filter.x.smudge": trap("smudge"),
        "filter.x.required": "true", "filter.p=q.process": trap("process"), "merge.x.driver": trap("merge"),
        "credential.helper": f"!{trap('credential')}",
        "credential.http://127.0.0.1.helper": f"!{trap('credential-url')}",
        "gpg.program": trap("gpg"), "gpg.ssh.program": trap("gpg-ssh"), "commit.gpgSign": "true",
        "gpg.ssh.defaultKeyCommand": trap("gpg-key"), "tag.gpgSign": "true", "push.gpgSign": "if-asked",
        "log.showSignature": "true", "alias.status": f"!{trap('alias')}",
        "trailer.x.command": trap("trailer"),
        "remote.origin.uploadpack": trap("uploadpack"), "remote.origin.receivepack": trap("receivepack"),
        "interactive.diffFilter": trap("difffilter"), "status.submoduleSummary": "true",
        "diff.submodule": "diff", "submodule.recurse": "true", "commit.verbose": "true",
        "uploadpack.packObjectsHook": trap("packobjects"),
    }  # fmt: skip
    for key, value in settings.items():
        git(folder, "config", key, value)
    (git_dir / "hooks").mkdir(exist_ok=True)
    for name in HOOKS:
        hook = git_dir / "hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {marks}/hook-{name}\n")
        hook.chmod(0o755)
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "attributes").write_text(
        "*.bin filter=x diff=x merge=x\nq filter=p=q\n*.txt diff=x\n"
    )


@pytest.fixture
def trapped(runner: Runner, tmp_path: Path) -> Path:
    """A repository with a submodule, both full of traps, and changes of every kind."""
    library = make(tmp_path / "library")
    folder = make(runner.workspace)
    git(folder, "submodule", "--quiet", "add", str(library), "sub")
    git(folder, "commit", "-qm", "with a submodule")
    (folder / "a.txt").write_text("other\n")
    (folder / "c.bin").write_text("other\n")
    (folder / "sub" / "a.txt").write_text("other\n")
    set_traps(folder / "sub", tmp_path / "marks")
    set_traps(folder, tmp_path / "marks")
    return folder


def calls(client: Client, tag: str) -> dict[str, dict[str, object]]:
    """Everything but what goes abroad."""
    return {
        "status": client.call(f"{tag}1", "git_status"),
        "diff": client.call(f"{tag}2", "git_diff"),
        "staged": client.call(f"{tag}3", "git_diff", staged=True, revision="HEAD"),
        "log": client.call(f"{tag}4", "git_log"),
        "commit": client.call(f"{tag}5", "git_commit", message="m", files=["a.txt"]),
        "range": client.call(f"{tag}6", "git_diff", revision="HEAD~1..HEAD"),
        "add": client.call(f"{tag}7", "git_worktree", action="add", name="side"),
        "list": client.call(f"{tag}8", "git_worktree", action="list"),
        "side": client.call(f"{tag}9", "git_status", path=".worktrees/side"),
        "remove": client.call(f"{tag}10", "git_worktree", action="remove", name="side", force=True),
        "sub": client.call(f"{tag}11", "git_status", path="sub"),
    }


def test_no_trap_of_a_repository_goes_off(client: Client, trapped: Path, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    outcomes = calls(client, "a")
    assert sorted(path.name for path in marks.iterdir()) == []
    refused = {name for name, outcome in outcomes.items() if outcome["status"] != "ok"}
    assert refused == set(), outcomes
    # The traps are real: git itself walks into them.
    git(trapped, "status", check=False)
    git(trapped, "diff", check=False)
    git(trapped, "commit", "--allow-empty", "-m", "x", check=False)
    gone_off = {path.name for path in marks.iterdir()}
    assert {"fsmonitor", "clean", "external", "hook-pre-commit"} <= gone_off, gone_off


def test_same_calls_work_in_a_clean_repository(client: Client, repository: Path) -> None:
    (repository / "sub").mkdir()
    make(repository / "sub")
    (repository / "a.txt").write_text("other\n")
    outcomes = calls(client, "a")
    assert {name: each["status"] for name, each in outcomes.items()} == dict.fromkeys(outcomes, "ok"), (
        outcomes
    )


REFUSED = {
    "include": ("include.path", "evil.inc"),
    "includeIf": ("includeIf.gitdir:**.path", "evil.inc"),
    "hook": ("hook.x.command", "touch /tmp/never"),
    "work tree": ("core.worktree", "/etc"),
}


@pytest.mark.parametrize(("key", "value"), REFUSED.values(), ids=REFUSED.keys())
def test_configuration_that_cannot_be_stood_against_is_refused(
    client: Client, repository: Path, tmp_path: Path, key: str, value: str
) -> None:
    (repository / ".git" / "evil.inc").write_text(f"[core]\nfsmonitor = touch {tmp_path}/mark\n")
    git(repository, "config", key, value)
    outcome = client.call("a", "git_status")
    assert outcome["status"] == "error"
    assert "configuration sets" in text_of(outcome) or "outside the workspace" in text_of(outcome)
    assert not (tmp_path / "mark").exists()


def test_git_folder_of_somebody_else_is_not_read(client: Client, runner: Runner, tmp_path: Path) -> None:
    other = make(tmp_path / "other")
    for number, how in enumerate(("file", "link", "alternates")):
        folder = runner.workspace / how
        folder.mkdir()
        if how == "file":
            (folder / ".git").write_text(f"gitdir: {other}/.git\n")
        elif how == "link":
            (folder / ".git").symlink_to(other / ".git")
        else:
            git(folder, "init", "-q")
            (folder / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")
        outcome = client.call(f"a{number}", "git_log", path=how, revision=git(other, "rev-parse", "HEAD"))
        assert outcome["status"] == "error", outcome
        assert "outside the workspace" in text_of(outcome)


def test_repository_above_the_workspace_is_not_found(client: Client, runner: Runner, tmp_path: Path) -> None:
    make(tmp_path)
    assert "not a git repository" in text_of(client.call("a", "git_status"))


def test_workspace_that_is_a_worktree_of_a_repository_elsewhere_works(
    client: Client, runner: Runner, tmp_path: Path
) -> None:
    other = make(tmp_path / "other")
    git(other, "worktree", "add", "-q", str(runner.workspace / "tree"), "-b", "side")
    outcome = client.call("a", "git_status", path="tree")
    assert outcome["details"]["branch"] == "side", outcome


def test_worktree_is_made_listed_and_removed(client: Client, repository: Path) -> None:
    made = client.call("a", "git_worktree", action="add", name="side", branch="topic/one")
    assert made["details"] == {"path": ".worktrees/side", "branch": "topic/one", "name": "side"}
    assert (repository / ".worktrees/side/a.txt").exists()
    assert client.call("s", "git_status")["details"]["files"] == []
    listed = client.call("b", "git_worktree", action="list")["details"]["worktrees"]
    assert [(each["path"], each["branch"]) for each in listed] == [
        (".", "main"), (".worktrees/side", "topic/one")
    ]  # fmt: skip
    (repository / ".worktrees/side/new").write_text("x")
    kept = client.call("c", "git_worktree", action="remove", name="side")
    assert kept["status"] == "error"
    assert client.call("d", "git_worktree", action="remove", name="side", force=True)["status"] == "ok"
    for number, name in enumerate(("..", "../x", "a/b", "-x", ".git")):
        refused = client.call(f"e{number}", "git_worktree", action="add", name=name)
        assert text_of(refused).startswith("name: must match")


# -- abroad -----------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    root = tmp_path / "served"
    bare = root / "somebody" / "project.git"
    bare.mkdir(parents=True)
    git(bare, "init", "-q", "--bare", "-b", "main")
    git(bare, "config", "http.receivepack", "true")
    with git_server(root) as made:
        yield made


@pytest.fixture
def abroad(runner: Runner, server: GitServer) -> tuple[Client, Path]:
    """A client of a runner that was given the token, and a repository with a remote."""
    runner.env |= server.environment()
    folder = make(runner.workspace)
    git(folder, "remote", "add", "origin", f"http://{server.host}/somebody/project.git")
    return runner.start(), folder


def served(server: GitServer, branch: str = "main") -> str:
    return git(server.root / "somebody/project.git", "rev-parse", "-q", "--verify", branch, check=False)


def test_push_brings_the_branch_to_the_remote(abroad: tuple[Client, Path], server: GitServer) -> None:
    client, folder = abroad
    outcome = client.call("a", "git_push")
    assert outcome["status"] == "ok", outcome
    assert served(server) == git(folder, "rev-parse", "HEAD")
    assert client.call("b", "git_status")["details"]["upstream"] == "origin/main"
    assert TOKEN not in str(outcome)
    (folder / "a.txt").write_text("x\n")
    git(folder, "commit", "-qa", "--amend", "-m", "other")
    refused = client.call("c", "git_push")
    assert (refused["status"], "rejected" in text_of(refused)) == ("error", True), refused
    forced = client.call("d", "git_push", force_with_lease=True)
    assert forced["status"] == "ok", forced
    assert served(server) == git(folder, "rev-parse", "HEAD")


def test_push_whose_answer_is_lost_is_read_back(abroad: tuple[Client, Path], server: GitServer) -> None:
    client, folder = abroad
    server.mood = "cut"
    outcome = client.call("a", "git_push")
    assert outcome["status"] == "ok", outcome
    assert served(server) == git(folder, "rev-parse", "HEAD")


def test_token_goes_to_its_own_host_alone(
    abroad: tuple[Client, Path], server: GitServer, tmp_path: Path
) -> None:
    client, folder = abroad
    with git_server(server.root) as other:
        git(folder, "remote", "set-url", "origin", f"http://{other.host}/somebody/project.git")
        outcome = client.call("a", "git_push")
        assert outcome["status"] == "error", outcome
        assert other.seen
        assert {word for _, _, word in other.seen} == {""}
    assert "FAIRLEAD_GIT" not in text_of(client.call("b", "bash", command="env"))


ABROAD_REFUSED = {
    "url": ("url.http://127.0.0.1:1/.insteadOf", "http://"),
    "proxy": ("http.proxy", "http://127.0.0.1:1"),
    "verify": ("http.sslVerify", "false"),
    "cookies": ("http.cookieFile", "/etc/passwd"),
    "vcs": ("remote.origin.vcs", "ext"),
}


@pytest.mark.parametrize(("key", "value"), ABROAD_REFUSED.values(), ids=ABROAD_REFUSED.keys())
def test_repository_has_no_say_in_how_the_remote_is_reached(
    abroad: tuple[Client, Path], server: GitServer, key: str, value: str
) -> None:
    client, folder = abroad
    git(folder, "config", key, value)
    outcome = client.call("a", "git_push")
    assert outcome["status"] == "error"
    assert f"configuration sets '{key}'".lower() in text_of(outcome).lower(), outcome
    assert server.seen == []


ADDRESSES = [
    "ext::sh -c 'touch MARK'",
    "file:///tmp/x",
    "/tmp/x",
    "../x",
    "-oProxyCommand=touch MARK:x",
    "git://h/x",
]


@pytest.mark.parametrize("url", ADDRESSES)
def test_remote_must_be_a_server(abroad: tuple[Client, Path], tmp_path: Path, url: str) -> None:
    client, folder = abroad
    git(folder, "config", "remote.origin.url", url.replace("MARK", str(tmp_path / "mark")))
    outcome = client.call("a", "git_push")
    assert outcome["status"] == "error", outcome
    assert not (tmp_path / "mark").exists()


def test_push_of_a_trapped_repository_sets_off_nothing(
    runner: Runner, server: GitServer, trapped: Path, tmp_path: Path
) -> None:
    runner.env |= server.environment()
    git(trapped, "remote", "add", "origin", f"http://{server.host}/somebody/project.git", check=False)
    git(trapped, "config", "remote.origin.url", f"http://{server.host}/somebody/project.git")
    outcome = runner.start().call("a", "git_push")
    assert outcome["status"] == "ok", outcome
    assert sorted(path.name for path in (tmp_path / "marks").iterdir()) == []


def test_pull_request_is_opened_once(abroad: tuple[Client, Path], server: GitServer) -> None:
    client, folder = abroad
    git(folder, "switch", "-qc", "topic")
    outcome = client.call("a", "create_pr", title="A title", body="words", draft=True)
    assert outcome["details"]["url"] == f"http://{server.host}/pull/1", outcome
    assert server.pulls[0] == {
        "title": "A title", "body": "words", "head": "topic", "base": "main", "draft": True,
        "number": 1, "html_url": f"http://{server.host}/pull/1",
    }  # fmt: skip
    again = client.call("b", "create_pr", title="Another")
    assert text_of(again) == f"There is one for this branch already: http://{server.host}/pull/1"


def test_pull_request_whose_answer_is_lost_is_looked_for(
    abroad: tuple[Client, Path], server: GitServer
) -> None:
    client, folder = abroad
    git(folder, "switch", "-qc", "topic")
    server.mood = "lost"
    outcome = client.call("a", "create_pr", title="A title", base="main")
    assert outcome["status"] == "unknown", outcome
    server.mood = "silent"
    outcome = client.call("b", "create_pr", title="A title", base="main")
    assert outcome["details"]["number"] == 1, outcome
    assert sum(method == "POST" for method, _, _ in server.seen) == 2


def test_pull_request_goes_through_gh_where_it_is(runner: Runner, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    gh = tools / "gh"
    gh.write_text(
        f'#!/bin/sh\nprintf \'%s\\n\' "$PWD" "$GH_TOKEN" "$@" > {tmp_path}/asked; cat >> {tmp_path}/asked\n'
        "echo https://github.com/somebody/project/pull/7\n"
    )
    gh.chmod(0o755)
    runner.env["PATH"] = f"{tools}:{runner.env['PATH']}"
    runner.env["FAIRLEAD_GIT_TOKEN"] = TOKEN
    folder = make(runner.workspace)
    git(folder, "remote", "add", "origin", "git@github.com:somebody/project.git")
    outcome = runner.start().call("a", "create_pr", title="--title", body="words", base="main")
    assert outcome["details"]["number"] == 7, outcome
    assert (tmp_path / "asked").read_text().splitlines() == [
        "/", TOKEN, "pr", "create", "--repo", "github.com/somebody/project", "--head", "main",
        "--base", "main", "--title=--title", "--body-file", "-", "words",
    ]  # fmt: skip
