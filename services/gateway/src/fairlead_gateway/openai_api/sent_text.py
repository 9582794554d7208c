"""What was sent of a message while it was being written, so that a second attempt at it is no repetition.

When the worker that writes a message dies, or the model breaks off, another attempt begins it again under
another id. A stream cannot take back what it sent, so the pieces of the new attempt are held back while they
repeat that. If the new attempt says something else, nothing of it is sent until the log has the message
whole; then what is missing follows after an empty line, from the beginning of the sentence that differs.
"""

import re
from typing import Final

SEPARATOR: Final = "\n\n"

# After a sentence or a line; what comes then can be read by itself.
_BEGINNING: Final = re.compile(r"(?:[.!?:][\"')\]]*\s+|\n\s*)(?=\S)")


class Sent:
    """The words of one kind of one message, sent piece by piece over all attempts at it."""

    def __init__(self) -> None:
        self._before = ""  # what earlier attempts sent
        self._fresh: list[str] = []  # what this attempt added
        self._repeated = 0  # characters of `_before` that this attempt has repeated so far
        self._differs = False

    def __bool__(self) -> bool:
        return bool(self._before or self._fresh)

    def again(self) -> None:
        """Another attempt at the same message begins."""
        self._before += "".join(self._fresh)
        self._fresh = []
        self._repeated = 0
        self._differs = False

    def piece(self, text: str) -> str:
        """What to send when this attempt says `text`."""
        if self._differs:
            return ""
        if self._repeated < len(self._before):
            known = self._before[self._repeated : self._repeated + len(text)]
            if not text.startswith(known):
                self._differs = True
                return ""
            self._repeated += len(known)
            text = text[len(known) :]
        if text:
            self._fresh.append(text)
        return text

    def rest(self, whole: str) -> str:
        """What to send once the log has the message whole."""
        return rest_of(self._before + "".join(self._fresh), whole)


def rest_of(sent: str, whole: str) -> str:
    """What to send of the message `whole` after `sent`, which may be of an attempt that said otherwise."""
    if whole.startswith(sent):
        return whole[len(sent) :]
    if sent.startswith(whole):
        return ""
    common = _common_length(sent, whole)
    begins = [0]
    begins += [found.end() for found in _BEGINNING.finditer(whole) if found.end() <= common]
    return SEPARATOR + whole[begins[-1] :]


def _common_length(one: str, other: str) -> int:
    """How many characters at the beginning are the same."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
