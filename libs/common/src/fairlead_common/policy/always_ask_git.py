"""Git commands that a person has to see each time: forced pushes, and what makes git run programs later."""

import re
from typing import Final

from fairlead_common.policy.shell_words import CommandWords

FORCED: Final = "it overwrites or deletes what others have (a forced push)"
_LATER: Final = "it makes git run a program later"

# Options of git itself that take the next word.
_VALUED: Final = frozenset(
    ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path")
)
_FORCING: Final = ("--force", "--force-with-lease", "--force-if-includes", "--mirror", "--delete", "--prune")
_MIN_PREFIX: Final = len("--fo")  # git takes the beginning of an option for the whole
# Options of `git push` with a value in the next word.
_PUSH_VALUED: Final = frozenset(("-o", "--push-option", "--repo", "--receive-pack", "--exec"))
_RUNNING_KEY: Final = re.compile(
    r"alias\..*|core\.(hookspath|fsmonitor|sshcommand|pager|editor|askpass|gitproxy|attributesfile|worktree"
    r"|alternaterefscommand)|(pager|browser|man|guitool|difftool|mergetool|trailer|hook)\..*|credential\.(.*\.)?helper"
    r"|filter\..*|diff\.external|diff\..*\.(command|textconv)|merge\..*\.driver|gpg\.(.*\.)?program|gpg\.ssh\..*"
    r"|include(if\..*)?\.path|init\.templatedir|interactive\.difffilter|sequence\.editor|ssh\.variant"
    r"|sendemail\..*|submodule\..*\.update|uploadpack\.packobjectshook|url\..*\.(pushinsteadof|insteadof)"
    r"|remote\..*\.(uploadpack|receivepack|vcs|proxy)|protocol\..*|blame\.ignorerevsfile|web\.browser|sendpack\..*",
    re.IGNORECASE | re.DOTALL,
)


def git_reason(rest: CommandWords) -> str:
    """Why a person has to see `git` with these words; empty when nothing speaks for that."""
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        word = rest[at]
        if word == "-c" and at + 1 < len(rest) and _RUNNING_KEY.fullmatch(rest[at + 1].partition("=")[0]):
            return "it makes git run a program"
        at += 2 if word in _VALUED else 1
    command, words = rest[at : at + 1], rest[at + 1 :]
    if command == ("push",):
        return FORCED if _is_forced(words) else ""
    if command == ("send-pack",):
        return FORCED if any(word.startswith(("-f", "+", "--f", "--mirror")) for word in words) else ""
    if command == ("config",):
        return _LATER if _sets_running_key(words) else ""
    return ""


def _is_forced(words: CommandWords) -> bool:
    skip = False
    plain = 0
    for word in words:
        if skip:
            skip = False
        elif word in _PUSH_VALUED:
            skip = True
        elif word.startswith("--"):
            name = word.partition("=")[0]
            if len(name) >= _MIN_PREFIX and any(each.startswith(name) for each in _FORCING):
                return True
        elif word.startswith("-") and word != "-":
            if {"f", "d"} & set(word[1:].partition("o")[0]):
                return True
        else:
            plain += 1
            if word.startswith("+") or (plain > 1 and word.startswith(":") and word != ":"):
                return True
    return False


def _sets_running_key(words: CommandWords) -> bool:
    """Whether a key that names a program gets a value, or a person would have to look at an editor."""
    if any(word in ("-e", "--edit", "edit") for word in words):
        return True
    for at, word in enumerate(words):
        if _RUNNING_KEY.fullmatch(word):
            before = words[:at]
            reads = any(each.startswith(("--get", "--unset", "--remove", "get", "unset")) for each in before)
            return not reads and at + 1 < len(words)
    return False


def is_forced_push(tool: str, arguments: dict[str, object]) -> bool:
    """Whether a call of our own git tools forces a push."""
    return tool == "git_push" and bool(arguments.get("force_with_lease"))
