"""What was shown of a reply while it was written, so that nothing of it is shown twice.

What was shown cannot be taken back. When another worker, or another attempt, begins a reply anew, nothing of
it is shown while it repeats what was shown; if it then differs, the rest waits for the whole reply.
"""

from typing import Final

SEPARATOR: Final = "\n\n"


class StreamedText:
    """The words of one kind of one reply, over all attempts at it."""

    def __init__(self) -> None:
        self._shown = ""
        self._attempt = ""  # what this attempt has said so far
        self._differs = False

    def again(self) -> None:
        """Another attempt begins."""
        self._attempt = ""
        self._differs = False

    def piece(self, text: str) -> str:
        """What to show when this attempt says `text`."""
        if self._differs:
            return ""
        self._attempt += text
        if self._attempt.startswith(self._shown):
            new = self._attempt[len(self._shown) :]
            self._shown = self._attempt
            return new
        self._differs = not self._shown.startswith(self._attempt)
        return ""

    def rest(self, whole: str) -> str:
        """What to show once the log has the reply whole."""
        if whole.startswith(self._shown):
            return whole[len(self._shown) :]
        return SEPARATOR + whole
