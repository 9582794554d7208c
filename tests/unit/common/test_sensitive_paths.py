"""Which paths are worth a question (FS-14, FS-15, FS-16), each list beside harmless twins."""

import time

import pytest

from fairlead_common.policy.sensitive_paths import persistence, secret


@pytest.mark.parametrize(
    "path",
    [
        ".git/hooks/pre-commit",
        "sub/project/.git/config",
        ".git",
        ".git/modules/x/config",
        ".envrc",
        ".vscode/tasks.json",
        "web/package.json",
        "pyproject.toml",
        "mypy.ini",
        "sub/.mypy.ini",
        ".github/workflows/ci.yml",
        "AGENTS.md",
        "docs/CLAUDE.md",
        "skills/pdf/SKILL.md",
        ".fairlead/config.json",
        ".mcp.json",
        "/home/me/.bashrc",
        "/home/me/.ssh/authorized_keys",
        "/etc/cron.d/job",
        "/etc/crontab",
        "/home/me/.config/systemd/user/x.service",
        ".husky/pre-push",
        "lib/python3.11/site-packages/evil.pth",
        "src/sitecustomize.py",
    ],
)
def test_fs_15_file_that_something_runs_later_is_told(path: str) -> None:
    assert persistence(path)


@pytest.mark.parametrize(
    "path",
    [
        "src/main.py",
        "README.md",
        "git/notes.txt",
        ".gitignore",
        "docs/agents.md.txt",
        "vscode/tasks.json",
        "package.json.md",
        "package-lock.json.bak",
        "profile",
        "hooks/useThing.ts",
        "bin/run",
        "usr/bin.md",
        "src/compose.ts",
        "docs/docker.md",
        "",
        ".",
    ],
)
def test_fs_15_twin_plain_file_is_not_asked_about(path: str) -> None:
    assert persistence(path) == ""


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "app/.env.production",
        ".ssh",
        "/root/.gnupg/",
        ".aws",
        ".config/gh",
        ".huggingface/token",
        ".cache/huggingface/token",
        ".dev.vars",
        ".openai",
        "group_vars/vault.yml",
        "tokens.json",
        "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "prod.env",
        "id_rsa",
        "/home/me/.ssh/id_ed25519",
        "/home/me/.ssh/config",
        "certs/server.pem",
        "tls.key",
        "/home/me/.aws/credentials",
        ".kube/config",
        ".config/gcloud/application_default_credentials.json",
        "service-account-prod.json",
        ".netrc",
        ".npmrc",
        ".pypirc",
        ".git-credentials",
        ".docker/config.json",
        "terraform.tfstate",
        "prod.tfvars",
        "/etc/shadow",
        "/proc/self/environ",
        "/proc/12/task/13/environ",
        "/proc/thread-self/mem",
        "/proc/12/maps",
        "/proc/12/task/13/cmdline",
        "/proc/12/fd/3",
        "/proc/12/task/13/fd",
        "/proc/12/root/etc/hostname",
        "/home/me/.bash_history",
        "user.creds",
        "Default/Login Data",
    ],
)
def test_fs_16_file_that_holds_secrets_is_told(path: str) -> None:
    assert secret(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env.example",
        "app/.env.sample",
        "environment.py",
        "/proc/cmdline",
        "/proc/meminfo",
        "/proc/12/status",
        "src/env.ts",
        "docs/credentials.md",
        "keys.py",
        "monkey.py",
        ".ssh/id_ed25519.pub",
        ".ssh/known_hosts",
        "certifi/cacert.pem",
        "secretary.txt",
        ".fairlead/inbox/e1/server.key",
        "",
        ".",
    ],
)
def test_fs_16_twin_template_or_public_half_is_not_asked_about(path: str) -> None:
    assert secret(path) == ""


@pytest.mark.parametrize(
    "path",
    [
        ".ENV",
        ".Env",
        ".e\u200cnv",
        "\uff0eenv",
        ".\u212fnv",
        ".env.",
        ".env ",
        "./a/../.env",
        "a//.env",
        "a\\.env",
        ".env/",
        "file:///srv/.env",
        "file://.env",
        ".en\u00adv",
        "\u202e.env",
    ],
)
def test_fs_14_twins_of_a_secret_file_are_seen_through(path: str) -> None:
    assert secret(path)


@pytest.mark.parametrize(
    "path", [".GIT/hooks/x", ".g\u200cit/config", ".git./config", ".git\\hooks\\x", "a/../.git/x"]
)
def test_fs_14_twins_of_git_are_seen_through(path: str) -> None:
    assert persistence(path)


@pytest.mark.parametrize(
    "path", ["/.git" * 800, "a" * 4096, "/" * 4096, ".tfstate" * 500, "*/" * 2000, "\0\n\ud800"]
)
def test_odd_and_long_paths_take_no_time_and_raise_nothing(path: str) -> None:
    before = time.process_time()
    persistence(path)
    secret(path)
    assert time.process_time() - before < 0.25
