"""What is known of programs: which run other programs or write files when their arguments say so.

A table of the common ones. A program that is not in it is what its name says to whoever writes a rule
about it: this narrows rules and refuses the worst of them, and contains nothing.
"""

import re
from typing import Final

from fairlead_common.shell_words import UNKNOWN, Words


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SHELLS: Final = _names(
    "sh bash dash zsh ksh mksh ash fish csh tcsh rbash busybox toybox pwsh xonsh elvish nu"
)
_INTERPRETERS: Final = _names(
    "python pypy perl ruby irb node nodejs deno bun php lua luajit tclsh wish expect awk gawk mawk nawk "
    "julia Rscript R guile racket scala groovy java jshell ghci runghc erl escript elixir iex ocaml "
    "sbcl clisp m4 dc gdb lldb sqlite3 psql mysql mariadb mongosh redis-cli octave gnuplot osascript "
    "emacs ed ex vi vim nvim view nano pico less more most man pg"
)
_LAUNCHERS: Final = _names(
    "env xargs parallel nohup setsid nice ionice chrt taskset timeout stdbuf unbuffer watch script "
    "strace ltrace perf valgrind flock chroot unshare nsenter bwrap firejail systemd-run systemctl "
    "screen tmux start-stop-daemon run-parts exec eval source . command builtin trap enable alias bind "
    "complete compgen mapfile readarray read unset let declare typeset local export readonly wait "
    "getopts set shopt hash coproc time entr inotifywait-run capsh cpulimit dbus-launch "
    "dbus-run-session faketime fakeroot linux32 linux64 setarch logsave multitime pkexec rlwrap "
    "run-mailcap runscript setpriv softlimit sg npx pipx uvx bunx corepack ssh-agent tclsh torsocks "
    "torify proxychains xvfb-run uftrace rr"
)
_RIGHTS: Final = _names("sudo doas su pkexec runuser run0 gosu")
_REMOTE: Final = _names(
    "ssh scp sftp rsync rclone mosh telnet ftp lftp tftp nc ncat netcat socat curl wget aria2c docker "
    "podman nerdctl ctr kubectl oc helm ansible ansible-playbook terraform vagrant virsh aws gcloud az "
    "openssl gpg sendmail mail mutt"
)
_ARCHIVERS: Final = _names("tar bsdtar cpio zip unzip 7z 7za rar ar pax shar")
_WRITERS: Final = _names("split csplit dd install patch tcpdump tshark at batch crontab")
_CHECKERS: Final = _names(
    "pytest py.test jest vitest mocha tsc eslint prettier ruff mypy pre-commit tox nox git-lfs"
)
_RUN: Final = _names("run exec dlx x")
_BUILDERS: Final = _names(
    "make gmake cmake ctest ninja meson scons bazel buck npm pnpm yarn pip pip3 uv poetry pdm hatch "
    "conda mamba cargo rustc go gradle gradlew mvn ant sbt rake bundle gem composer mix rebar3 cabal "
    "stack dotnet msbuild swift xcodebuild invoke just task doit apt apt-get aptitude dpkg yum dnf rpm "
    "apk pacman brew snap flatpak"
)
DOWNLOADERS: Final = _names(
    "curl wget aria2c http https xh lynx links elinks w3m ftp lftp sftp scp rsync ssh nc ncat netcat "
    "socat telnet dig nslookup host whois gh hub"
)
# By their names alone they reach no network, whatever follows.
_OFFLINE: Final = _names(
    "ls cat head tail wc echo printf pwd true false test stat du df cut tr uniq comm cmp nl tac rev fold "
    "basename dirname realpath readlink sha256sum sha1sum md5sum cksum sleep mkdir rmdir touch cp mv rm grep "
    "egrep fgrep seq expr id uname whoami nproc"
)
_VERSION: Final = re.compile(r"[0-9.]+\Z")

_PATTERNED: Final = _names("find git sed sort rg uniq xxd tree printf test file date hostname")
_GIT_READING: Final = _names(
    "status log diff show ls-files ls-tree rev-parse rev-list name-rev describe blame annotate shortlog "
    "cat-file grep merge-base count-objects check-ignore whatchanged reflog"
)
_GIT_CHANGING: Final = _names(
    "add commit push pull fetch checkout switch restore merge tag branch stash mv rm reset worktree "
    "cherry-pick revert remote"
)
_GIT_OPTIONS: Final = _names(
    "--short --porcelain --branch --oneline --stat --shortstat --numstat --name-only --name-status "
    "--graph --decorate --all --max-count --since --until --after --before --author --grep --patch "
    "--no-patch --cached --staged --no-color --color --color-words --word-diff --no-merges --merges "
    "--first-parent --reverse --follow --format --pretty --date --abbrev-commit --abbrev --no-pager "
    "--stat-width --summary --raw --no-renames --find-renames --ignore-space-change --ignore-all-space "
    "--unified --quiet --verbose --tags --heads --remotes --show-toplevel --show-current --abbrev-ref "
    "--others --exclude-standard --modified --deleted --line-number --ignore-case --count "
    "--files-with-matches --untracked-files --ignored --list --message --amend --no-edit --set-upstream "
    "--dry-run --prune --ff-only --no-ff --force-with-lease --contains --merged --no-merged --sort "
    "--points-at --is-inside-work-tree --git-dir --left-right --cherry-pick --no-ext-diff --no-textconv "
    "--is-ancestor --no-verify-signatures --update --patience --histogram --minimal --check --text "
    "--full-index --root --topo-order --date-order --long --always"
)
_FIND: Final = _names(
    "-name -iname -path -ipath -wholename -regex -iregex -regextype -type -xtype -size -empty -mtime "
    "-mmin -atime -amin -ctime -cmin -newer -anewer -cnewer -maxdepth -mindepth -depth -mount -xdev "
    "-prune -print -print0 -ls -printf -quit -not -and -or -a -o -true -false -user -group -perm "
    "-readable -writable -executable -links -inum -samefile -daystart -follow -L -P -H"
)
_SORT_LONG: Final = _names(
    "--numeric-sort --reverse --unique --human-numeric-sort --version-sort --general-numeric-sort "
    "--month-sort --ignore-case --dictionary-order --stable --check --merge --zero-terminated --key "
    "--field-separator --ignore-leading-blanks"
)
_SED_SCRIPT: Final = re.compile(
    r"(?:(?:\d+|\$)(?:,(?:\d+|\$))?)?[pd=]|\d+q"
    r"|(?:\d+(?:,(?:\d+|\$))?)?s/(?:[^/\\\n]|\\[^\n])*/(?:[^/\\\n]|\\[^\n])*/[gpIi0-9]*"
)


def program(words: Words) -> str:
    """The name of the program, without folder and version: `/usr/bin/python3.11` is `python`."""
    name = words[0].rpartition("/")[2] if words else ""
    bare = _VERSION.sub("", name)
    return bare if bare in _INTERPRETERS or bare in SHELLS else name


def star_problem(literal: Words) -> str:
    """Why no rule may allow every command that begins with these words; empty when one may."""
    name = program(literal)
    if name in SHELLS or name in _INTERPRETERS:
        return f"{name} runs whatever its arguments say"
    if name in _RIGHTS:
        return f"{name} gives other rights"
    if name in _LAUNCHERS:
        return f"{name} runs the program that its arguments name"
    if name in _REMOTE or name in _ARCHIVERS or name in _WRITERS:
        return f"{name} can run programs or write anywhere, as its arguments say"
    if name in _BUILDERS:
        return _builder_problem(name, literal)
    if name == "git" and len(literal) > 1 and literal[1] not in _GIT_READING | _GIT_CHANGING:
        return f"git {literal[1]} can run programs, as its arguments or settings say"
    return ""


def _builder_problem(name: str, literal: Words) -> str:
    if len(literal) < 2:
        return f"{name} runs what its arguments and the workspace say: name what it shall do"
    if literal[1] in _RUN and not (name in ("npm", "yarn", "pnpm") and literal[1] == "run"):
        if len(literal) < 3:
            return f"{name} {literal[1]} runs the program that its arguments name"
        return star_problem(literal[2:])
    return ""


def argument_problem(words: Words, literal: int) -> str:
    """Why these words should not pass under a rule with a `*`; empty when they may.

    Args:
        literal: how many words at the beginning the rule names as they are.
    """
    name, rest = program(words), words[1:]
    if problem := star_problem(words[:literal]):
        return problem
    if name in _BUILDERS:
        odd = next((word for word in words[literal:] if word.startswith("-") or "=" in word), "")
        return f"{name} may be told to run something else by {odd!r}" if odd else ""
    if name not in _PATTERNED:
        return ""
    return (
        "" if _harmless(name, rest, literal) else f"these arguments of {name} may run programs or write files"
    )


def _harmless(name: str, rest: Words, literal: int) -> bool:
    options = [word for word in rest if word.startswith("-") and word != "-"]
    plain = [word for word in rest if not word.startswith("-") or word == "-"]
    match name:
        case "git":
            return _harmless_git(rest, literal)
        case "find":
            return all(word in _FIND or word == "--" for word in options)
        case "sed":
            allowed = {"-n", "-E", "-r", "-s", "-u", "-z", "--quiet", "--silent"}
            return (
                all(word in allowed for word in options)
                and _SED_SCRIPT.fullmatch((plain or [""])[0]) is not None
            )
        case "sort":
            return all(_sort_option(word) for word in options)
        case "rg":
            return not any(
                word.startswith(("--pre", "--hostname-bin", "--search-zip", "-z")) for word in options
            )
        case "uniq" | "xxd":
            return len(plain) <= 1 and "-r" not in options
        case "tree":
            return not any(re.match(r"-[^-]*[oR]|--output", word) for word in options)
        case "printf":
            return not rest or not rest[0].startswith("-")
        case "test":
            return not any(word in ("-v", "-R") for word in options)
        case "file":
            return all(
                re.fullmatch(r"-[bikLhNprs0]+|--brief|--mime(-type|-encoding)?", word) for word in options
            )
        case "date":
            return all(
                re.fullmatch(r"-u|--utc|-I\w*|--iso-8601(=\w+)?|-d.*|--date=.*|-R", word) for word in options
            )
        case _:  # hostname: a word would set it
            return not plain


def _sort_option(word: str) -> bool:
    if word.startswith("--"):
        return word == "--" or word.partition("=")[0] in _SORT_LONG
    return re.fullmatch(r"-t.|-[bdfgiMhnRrVcCmsuz]*(k[0-9.,bdfginrMhV]*)?", word) is not None


def _harmless_git(rest: Words, literal: int) -> bool:
    if not rest or rest[0] not in _GIT_READING | _GIT_CHANGING:
        return False
    if rest[0] in _GIT_CHANGING and literal < 2:
        return False  # a rule has to name what changes something
    letters = "abdfilmnpqrsvwzACDEGLMSUW0123456789"
    if rest[0] in ("pull", "fetch", "remote", "worktree"):
        letters = letters.replace("f", "")
    for word in rest[1:]:
        if "::" in word and not word.startswith("-"):
            return False  # a remote helper: `ext::sh -c ...`
        if word.startswith("--") and word != "--":
            if word.partition("=")[0] not in _GIT_OPTIONS:
                return False
        elif word.startswith("-") and word != "-" and set(word[1:]) - set(letters):
            return False
    return True


def grant_problem(words: Words) -> str:
    """Why exactly these words may not be allowed for longer than once; empty when they may.

    What they run is decided elsewhere: in a file, in settings, by another host, or in the environment.
    """
    name = program(words)
    if any(word.startswith(UNKNOWN) for word in words):
        return "some of its words are only known when it runs"
    if "/" in words[0]:
        return f"{words[0]} is a file, and may be another one tomorrow"
    if name in SHELLS or name in _INTERPRETERS or name in _LAUNCHERS or name in _RIGHTS:
        return f"{name} runs other programs"
    if name in _REMOTE or name in _ARCHIVERS or name in _WRITERS or name == "find":
        return f"{name} can run programs or write anywhere"
    if name in _BUILDERS or name in _CHECKERS:
        return f"{name} runs what the workspace says"
    if name == "git" and (len(words) < 2 or words[1] not in _GIT_READING | _GIT_CHANGING):
        return "git runs programs that its settings name"
    return ""


def fetches(words: Words) -> bool:
    """Whether its output is likely to be what strangers wrote."""
    name = program(words)
    return name in DOWNLOADERS or (
        name == "git"
        and any(word in ("clone", "fetch", "pull", "ls-remote", "submodule") for word in words[1:3])
    )


def works_offline(words: Words) -> bool:
    """Whether the program, whatever its arguments, reaches no network and starts no other program."""
    return "/" not in words[0] and words[0] in _OFFLINE


def unwrapped(words: Words) -> list[Words]:
    """The command, and what is inside of wrappers such as `sudo`, `env A=1` or `timeout 5`, by bare name."""
    found = []
    for start in range(min(len(words), 12)):
        before = words[:start]
        if start and (program(before) not in _LAUNCHERS | _RIGHTS):
            break
        word = words[start]
        if start and (word.startswith("-") or "=" in word):
            continue
        found.append((program(words[start:]), *words[start + 1 :]))
    return found
