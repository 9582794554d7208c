"""Commands that a person has to see each time, whatever was allowed before.

By their words where these can be told, and by the look of the text in any case. A net for accidents and
for the crudest of attacks: who wants to can write the same in a way that nothing here knows.
"""

import re
from typing import Final

from fairlead_common.programs import SHELLS, program, unwrapped
from fairlead_common.shell_words import Shell, Words


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WIPERS: Final = re.compile(
    r"mkfs(\..+)?|mkswap|wipefs|fdisk|sfdisk|cfdisk|parted|blkdiscard|cryptsetup|shred"
)
_POWER: Final = _names("shutdown reboot halt poweroff telinit kexec")
_RIGHTS: Final = _names("sudo doas su pkexec runuser run0")
_LATER: Final = _names("crontab at batch systemd-run")
_WHOLE: Final = re.compile(
    r"/+\.?|/+\*|~/?\*?|\$\{?HOME\}?/?\*?|\.\.?/?|\*|/(bin|boot|dev|etc|home|lib|opt|root|sbin|srv|usr|var)/?\*?"
)
_DEVICE: Final = re.compile(r"/dev/(?!null\Z|stdout\Z|stderr\Z|tty\Z|fd/)")

# Each alternative stops at the end of a simple command, and none can repeat inside of another.
_LOOKS: Final = [
    (
        re.compile(
            r"\brm\s[^;&|\n]{0,200}?(?<![\w-])-\w*[rRf]\w*\s[^;&|\n]{0,200}?(?<=\s)(/|~|\$\{?HOME\}?)(/?\*|/?\s|/?$)"
        ),
        "it removes everything",
    ),
    (re.compile(r"--no-preserve-root"), "it removes everything"),
    (
        re.compile(r"\bmkfs\b|\bdd\s[^;&|\n]*\bof=/dev/(?!null\b)|>\s*/dev/(sd|nvme|vd|hd|mem|disk)"),
        "it writes to a device",
    ),
    (re.compile(r"(^|[;&|(`\s])(sudo|doas|pkexec)\s"), "it wants other rights"),
    (re.compile(r"(^|[;&|(`\s])(shutdown|reboot|halt|poweroff)(\s|;|$)"), "it stops the machine"),
    (re.compile(r":\s*\(\)\s*\{|\b(\w+)\s*\(\)\s*\{[^}]*\b\1\s*\|\s*\1\b"), "it is a fork bomb"),
    (
        re.compile(
            r"\b(curl|wget|fetch|aria2c|nc|ncat)\b[^;&\n]*\|[^;&\n]*?\b(sh|bash|dash|zsh|ksh|fish|python[\d.]*|perl|ruby|node|php)\b"
        ),
        "it runs what it downloads",
    ),
    (
        re.compile(
            r"\b(sh|bash|zsh|eval|source|python[\d.]*|perl|ruby|node|php)\b[^\n]{0,80}?[$<(`]\(?\s*(curl|wget)\b"
        ),
        "it runs what it downloads",
    ),
    (re.compile(r"/dev/(tcp|udp)/"), "it opens a connection by a path"),
    (
        re.compile(r"(^|[;&|(`\s])(crontab\s(?!\s*-l\b)|systemd-run\s)|\bsystemctl\s[^;&|\n]*\benable\b"),
        "it leaves something that runs later",
    ),
]


def never_automatic(command: str, shell: Shell) -> str:
    """Why a person has to see this command each time; empty when nothing speaks for that."""
    text = command[:100_000]
    for pattern, reason in _LOOKS:
        if pattern.search(text):
            return reason
    for target in shell.writes:
        if _DEVICE.match(target):
            return "it writes to a device"
    downloads = False
    for words in shell.commands:
        for inner in unwrapped(words):
            if reason := _reason(inner):
                return reason
            if downloads and (program(inner) in SHELLS) and len(inner) == 1:
                return "it runs what it downloads"
        downloads = downloads or words[0] in ("curl", "wget", "fetch", "aria2c", "nc", "ncat")
    return ""


def _reason(words: Words) -> str:
    name, rest = words[0], words[1:]
    letters = "".join(word[1:] for word in rest if re.match(r"-[^-]", word))
    recursive = "r" in letters.lower() or "--recursive" in rest
    if name in ("rm", "chmod", "chown", "chgrp") and recursive and any(map(_is_whole, rest)):
        return "it removes or changes everything"
    if (
        name == "find"
        and rest
        and _WHOLE.fullmatch(rest[0])
        and {"-delete", "-exec"} & set(rest)
        and rest[0] != "."
    ):
        return "it removes or changes everything"
    if _WIPERS.fullmatch(name):
        return "it wipes a device or a file"
    if name in ("dd", "tee", "cp") and any(_DEVICE.match(word.removeprefix("of=")) for word in rest):
        return "it writes to a device"
    if name in _RIGHTS:
        return "it wants other rights"
    if name in _POWER or (name == "systemctl" and set(rest) & (_POWER | {"enable", "mask"})):
        return "it stops the machine or changes what it starts"
    if name == "init" and rest[:1] in (("0",), ("6",)):
        return "it stops the machine"
    if name in _LATER and rest[:1] not in (("-l",), ()):
        return "it leaves something that runs later"
    if name == "kill" and "-1" in rest[1:]:
        return "it ends every process"
    return ""


def _is_whole(word: str) -> bool:
    return _WHOLE.fullmatch(word) is not None and word not in (".", "./")
