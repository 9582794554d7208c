"""Commands that a person has to see each time, whatever was allowed before.

By their words where these can be told, and by the look of the text in any case. A net for accidents and
for the crudest of attacks: who wants to can write the same in a way that nothing here knows.
"""

import re
from collections.abc import Mapping
from typing import Final

from fairlead_common.policy.always_ask_words import downloaded, is_device, reason
from fairlead_common.policy.programs import program, star_problem, unwrapped
from fairlead_common.policy.shell_words import UNKNOWN, CommandWords, Shell

MAX_CHARS: Final = 65_536


# For what is code inside of a word (`bash -c "..."`), or cannot be parsed. Each takes linear time.
_LOOKS: Final = [
    (re.compile(r"--no-preserve-root"), "it removes everything"),
    (re.compile(r"\bmkfs\b|>\s{0,9}/dev/(sd|nvme|vd|hd|mem|disk)"), "it writes to a device"),
    (re.compile(r"(^|[;&|(`\s'\"!])(sudo|doas|pkexec)\s"), "it asks for other privileges"),
    (re.compile(r"(^|[;&|(`\s'\"!])(shutdown|reboot|halt|poweroff)([\s;'\")`]|$)"), "it stops the machine"),
    (
        re.compile(r"(^|[;&|(`\s'\"!])(crontab\s(?!\s{0,9}-l\b)|systemd-run\s)"),
        "it installs something that runs later",
    ),
]
_INSIDE: Final = re.compile(r"\b(rm|dd|chmod|chown|git|crontab|truncate)(\s[^;&|\n]{0,200})")
_FETCHER: Final = re.compile(r"\b(curl|wget|aria2c)\b")
_INTO_SHELL: Final = re.compile(
    r"\|\s{0,9}((sudo|env|nohup)\s{1,9}|\S{0,20}/){0,3}"
    r"((sh|bash|dash|zsh|ksh|fish)\b|(python[\d.]{0,5}|perl|ruby|node|php)\s{0,9}(-\s|[;&|\n'\")]|$))"
)
_SHELL_OF: Final = re.compile(r"\b(sh|bash|dash|zsh|ksh|eval|source)\b")
_SUBSTITUTED: Final = re.compile(r"[$<(`]\(?\s{0,9}(curl|wget)\b")
_PATH_OF_THE_NET: Final = re.compile(r"/dev/(tcp|udp)/")
_BOMB: Final = re.compile(r"(?:^|[\s;])([\w:]{1,40})\s{0,9}\(\)\s{0,9}\{[^}]{0,100}?\1\s{0,9}\|\s{0,9}\1")


# Names of keys that are text; the other names stand for none.
_KEYS: Final = {
    "enter": "\n",
    "return": "\n",
    "c-j": "\n",
    "c-m": "\n",
    "space": " ",
    "tab": "\t",
    "c-i": "\t",
}
_TEXTLESS: Final = re.compile(
    r"s-tab|esc(ape)?|backspace|delete|insert|up|down|right|left|home|end|page[_-]?(up|down)|f\d\d?|c-."
)


def typed(arguments: Mapping[str, object]) -> list[str]:
    """What a call would type into a running program: its text, and its keys one after the other."""
    text, keys = arguments.get("text"), arguments.get("keys")
    found = [text] if isinstance(text, str) else []
    if isinstance(keys, list):
        found.append("".join(_text_of_key(key) for key in keys if isinstance(key, str)))
    return found


def _text_of_key(key: str) -> str:
    name = key.lower()
    return "" if _TEXTLESS.fullmatch(name) and name not in _KEYS else _KEYS.get(name, key)


def never_automatic(command: str, shell: Shell) -> str:
    """Why a person has to see this command each time; empty when nothing speaks for that."""
    if len(command) > MAX_CHARS:
        return f"it is too long to check: {len(command)} characters, at most {MAX_CHARS}"
    if _PATH_OF_THE_NET.search(command):
        return "it opens a network connection through a path"
    if _BOMB.search(command):
        return "it is a fork bomb"
    has_code = not shell.commands or any(map(_runs_words, shell.commands))
    if has_code and (found := _looks_bad(command)):
        return found
    writes = [target.lstrip(UNKNOWN) for target in shell.writes]
    if any(map(is_device, writes)):
        return "it writes to a device"
    inner = [found for words in shell.commands for found in unwrapped(_bare(words))]
    return next(filter(None, map(reason, inner)), "") or downloaded(inner, writes)


def _looks_bad(text: str) -> str:
    for pattern, why in _LOOKS:
        if pattern.search(text):
            return why
    for match in _INSIDE.finditer(text):
        words = tuple(word for word in re.split(r"[\s'\"()`]+", match[0]) if word)
        if found := reason(words):
            return found
    fetched = _FETCHER.search(text)
    if fetched and (
        _INTO_SHELL.search(text, fetched.end()) or (_SUBSTITUTED.search(text) and _SHELL_OF.search(text))
    ):
        return "it runs what it downloads"
    return ""


def _bare(words: CommandWords) -> CommandWords:
    return tuple(word.lstrip(UNKNOWN) or word for word in words)


def _runs_words(words: CommandWords) -> bool:
    """Whether a word of it may be code itself; else its words are all that there is to know."""
    return program(words) == "find" or bool(star_problem(words[:2]))
