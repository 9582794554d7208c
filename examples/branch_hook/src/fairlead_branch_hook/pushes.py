"""Which branches of a remote a command pushes to, as far as its words say."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

UNNAMED = ""  # a push that does not name its branches

_OF_GIT = {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--exec-path"}
_OF_PUSH = {"-o", "--push-option", "--repo", "--receive-pack", "--exec"}
_MANY = ("--all", "--branches", "--mirror", "--tags")


def pushed(words: Sequence[str]) -> Iterator[str]:
    """The branches, without `refs/heads/`; `UNNAMED` where the configuration of git decides."""
    at = next((at for at, word in enumerate(words) if PurePath(word).name == "git"), None)
    if at is None:
        return
    _, rest = _split(words[at + 1 :], _OF_GIT, first=True)
    if not rest or rest[0] != "push":
        return
    options, plain = _split(rest[1:], _OF_PUSH)
    if any(each.startswith(_MANY) for each in options) or len(plain) < 2:
        yield UNNAMED
        return
    for spec in plain[1:]:
        target = spec.removeprefix("+").rpartition(":")[2].removeprefix("refs/heads/")
        yield UNNAMED if target in ("", "HEAD", "@") or "*" in target else target


def _split(words: Sequence[str], valued: set[str], *, first: bool = False) -> tuple[list[str], list[str]]:
    """Options, and the words that are none; with `first` options end at the first such word."""
    options: list[str] = []
    plain: list[str] = []
    at = 0
    while at < len(words):
        word = words[at]
        if first and plain:
            plain.append(word)
        elif word.startswith("-") and word != "-":
            options.append(word)
            at += word in valued
        else:
            plain.append(word)
        at += 1
    return options, plain
