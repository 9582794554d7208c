"""Paths that are worth a question: files that something runs by itself later, and files that hold secrets.

Only the spelling is looked at, so a link or a command can lead around it: this saves accidents and makes
a hijacked model ask; what it must not reach at all belongs outside of its sandbox.
"""

import posixpath
import re
import unicodedata
from typing import NamedTuple

_GIT = "git runs commands that it names"
_SHELL = "a shell runs it when it starts"
_EDITOR = "an editor or debugger runs what it names"
_BUILD = "a build, install or test run executes what it names"
_CI = "it runs in the pipeline, with the pipeline's credentials"
_LOGIN = "it decides who may log in, and what runs then"
_SYSTEM = "the system runs what it names"
_AGENT = "agents take it for instructions"

_KEY = "a private key or certificate store"
_SETTINGS = "settings that hold passwords and tokens"
_CLOUD = "credentials of a cloud or cluster"
_TOKENS = "saved logins and tokens"
_HISTORY = "what was typed into a shell or console"
_OF_THE_SYSTEM = "what the system keeps from its users"


class _Rule(NamedTuple):
    """A pattern for the whole path, its parts joined by "/" with one in front, and what it means."""

    pattern: re.Pattern[str]
    reason: str


def _rules(*lines: tuple[str, str]) -> tuple[_Rule, ...]:
    """Rules of patterns in which `*` is anything within one part and `**` anything at all."""
    made = []
    for reason, patterns in lines:
        for pattern in patterns.split():
            words = re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")
            anchor = "" if pattern.startswith("/") else "(?:.*)/"
            made.append(_Rule(re.compile(f"{anchor}{words}", re.DOTALL), reason))
    return tuple(made)


_PERSISTENCE = _rules(
    (_GIT, ".git .git/** .gitconfig .gitmodules .config/git/** .husky/** .githooks/** git/hooks/*"),
    (_GIT, ".pre-commit-config.yaml .pre-commit-config.yml lefthook.yml .lefthook.yml"),
    (_SHELL, ".envrc .direnv/** .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile"),
    (_SHELL, ".zshrc .zshenv .zprofile .zlogin .zlogout .kshrc .cshrc .tcshrc .login .inputrc"),
    (_SHELL, ".config/fish/** .config/nushell/** .pam_environment .xprofile .xinitrc .xsessionrc .tmux.conf"),
    (
        _SHELL,
        "/etc/profile /etc/profile.d/** /etc/bash.bashrc /etc/environment /etc/zsh/** .mise.toml mise.toml",
    ),
    (_EDITOR, ".vscode/** .idea/** .fleet/** .zed/** .devcontainer/** .devcontainer.json *.code-workspace"),
    (_EDITOR, ".vimrc .exrc .nvimrc .nvim.lua .vim/** .config/nvim/** .emacs .emacs.d/** .dir-locals.el"),
    (_EDITOR, ".gdbinit .lldbinit .rprofile .irbrc .pryrc .psqlrc .pythonrc.py .ipython/** .jupyter/**"),
    (_BUILD, "package.json .npmrc .yarnrc .yarnrc.yml .yarn/** .pnpmfile.cjs bunfig.toml deno.json"),
    (_BUILD, "pyproject.toml setup.py setup.cfg conftest.py tox.ini noxfile.py pip.conf .pip/**"),
    (_BUILD, "sitecustomize.py usercustomize.py *.pth .cargo/config .cargo/config.toml build.rs"),
    (_BUILD, ".mvn/** .gradle/** gradle-wrapper.properties gradlew mvnw .bazelrc .bundle/config"),
    (_CI, ".github/workflows/** .github/actions/** .gitlab-ci.yml .circleci/** .buildkite/** .drone.yml"),
    (_CI, "jenkinsfile azure-pipelines.yml bitbucket-pipelines.yml .travis.yml .woodpecker/** .forgejo/**"),
    (_LOGIN, ".ssh .ssh/** /etc/ssh/** /etc/pam.d/** /etc/sudoers /etc/sudoers.d/** /etc/passwd /etc/group"),
    (
        _SYSTEM,
        "/etc/cron* /etc/cron*/** /etc/anacrontab /var/spool/cron/** crontab /etc/rc.local /etc/init.d/**",
    ),
    (_SYSTEM, "systemd/system/** systemd/user/** .config/autostart/** .config/environment.d/** /etc/udev/**"),
    (
        _SYSTEM,
        "library/launchagents/** library/launchdaemons/** /etc/ld.so.* /etc/ld.so.conf.d/** .docker/**",
    ),
    (
        _AGENT,
        "agents.md agents.override.md claude.md claude.local.md gemini.md soul.md skill.md .cursorrules",
    ),
    (_AGENT, ".fairlead/** .agents/** .claude/** .claude.json .codex/** .cursor/** .gemini/** .windsurf/**"),
    (_AGENT, ".clinerules .clinerules/** .windsurfrules .mcp.json mcp.json copilot-instructions.md"),
)

_SECRET = _rules(
    (_SETTINGS, ".env .env.* *.env .envrc .flaskenv secrets.* *.secrets secret.yaml secret.yml secret.json"),
    (_SETTINGS, "*.tfstate *.tfstate.* *.tfvars *.tfvars.json .htpasswd .pgpass .my.cnf .mylogin.cnf .s3cfg"),
    (
        _KEY,
        "id_rsa id_dsa id_ecdsa id_ecdsa_sk id_ed25519 id_ed25519_sk identity *.pem *.key *.p12 *.pfx *.p8",
    ),
    (
        _KEY,
        "*.jks *.keystore *.kdbx *.ppk *.nk .gnupg/** .password-store/** *.keychain *.keychain-db .ssh/**",
    ),
    (_CLOUD, ".aws/** .azure/** .config/gcloud/** .oci/** .kube/** kubeconfig *.kubeconfig .boto .doctl/**"),
    (
        _CLOUD,
        "application_default_credentials.json service-account*.json service_account*.json .terraform.d/**",
    ),
    (_CLOUD, ".terraformrc .config/doctl/** .config/hcloud/** .fly/** .config/rclone/** rclone.conf"),
    (
        _TOKENS,
        ".netrc _netrc .git-credentials .config/git/credentials .npmrc .yarnrc.yml .pypirc",
    ),
    (
        _TOKENS,
        ".docker/config.json .dockercfg .cargo/credentials .cargo/credentials.toml .gem/credentials",
    ),
    (_TOKENS, ".m2/settings.xml .vault-token"),
    (
        _TOKENS,
        ".config/gh/** .config/hub .config/op/** credentials credentials.json credentials.toml token.json",
    ),
    (
        _TOKENS,
        "client_secret*.json *.creds auth.json .claude.json .claude/.credentials.json .codex/auth.json",
    ),
    (
        _TOKENS,
        "login*data logins.json key4.db cookies cookies.sqlite local*state .config/nats/**",
    ),
    (_HISTORY, ".bash_history .zsh_history .python_history .node_repl_history .psql_history .mysql_history"),
    (_HISTORY, ".rediscli_history .sqlite_history .lesshst .viminfo .wget-hsts fish_history"),
    (
        _OF_THE_SYSTEM,
        "/etc/shadow* /etc/gshadow* /etc/sudoers /etc/sudoers.d/** /etc/ssh/*_key /etc/krb5.keytab",
    ),
    (
        _OF_THE_SYSTEM,
        "/proc/**/environ /proc/**/mem /proc/**/maps /proc/**/smaps /proc/**/cmdline /proc/kcore /dev/mem",
    ),
    (
        _OF_THE_SYSTEM,
        "/proc/**/fd /proc/**/fd/** /proc/**/root /proc/**/root/** /run/secrets/** *.keytab",
    ),
)

# Templates that people commit on purpose, and halves of key pairs that are meant to be shown.
_HARMLESS = _rules(
    (
        "",
        ".env.example .env.sample .env.template .env.dist .env.defaults example.env sample.env template.env",
    ),
    ("", "*.tfvars.example .ssh/*.pub .ssh/known_hosts .ssh/known_hosts.old cacert.pem ca-certificates.pem"),
    ("", "secrets.py.example secrets.example.* .aws/config.example"),
)


def persistence(path: str) -> str:
    """Why a file of this path may act later, beyond the call that writes it; empty when it is plain.

    Raises nothing: what is no path at all is refused by the tool itself.
    """
    return _first(_PERSISTENCE, _plain(path))


def secret(path: str) -> str:
    """What secret a file of this path usually holds; empty when none."""
    plain = _plain(path)
    return "" if _matches(_HARMLESS, plain) else _first(_SECRET, plain)


def _plain(path: str) -> str:
    """The path as a careless file system reads it: case, ligatures, hidden letters and dots undone."""
    folded = unicodedata.normalize("NFKC", path).casefold().replace("\\", "/")
    visible = "".join(each for each in folded if unicodedata.category(each) not in ("Cf", "Cc"))
    if visible.startswith("file:"):
        visible = visible.removeprefix("file:")
    whole = posixpath.normpath("/" + visible.lstrip("/"))
    return "/".join(part.rstrip(". ") or part for part in whole.split("/"))


def _first(rules: tuple[_Rule, ...], plain: str) -> str:
    return next((rule.reason for rule in rules if rule.pattern.fullmatch(plain)), "")


def _matches(rules: tuple[_Rule, ...], plain: str) -> bool:
    return any(rule.pattern.fullmatch(plain) for rule in rules)
