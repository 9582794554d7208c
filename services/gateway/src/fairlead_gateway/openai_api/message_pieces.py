"""The live pieces of replies as they come: which of them count, and when."""

from fairlead_common.protocol.events import LiveEvent, MessageUpdate
from fairlead_common.session_log.input_view import InputView


class MessagePieces:
    """Brings live pieces and the log into one order, for one that folds both.

    A piece counts if all pieces of its message before it were heard. What the log has whole counts no more.

    Fields:
        log_seq: sequence of the last record of the log that was read.
    """

    def __init__(self, view: InputView) -> None:
        self._view = view
        self._early: list[MessageUpdate] = []  # heard before the log entries that they came after
        self._message = ""  # the one that is being written
        self._whole: set[str] = set()  # those that the log has: what is heard of them comes late
        self._seen = 0
        self._gap = False
        self.log_seq = 0

    def heard(self, event: LiveEvent) -> MessageUpdate | None:
        """The piece, if it is of the answer and its turn has come; an early one is kept for `reached`."""
        if not isinstance(event, MessageUpdate):
            return None
        if event.log_seq > self.log_seq:  # also before the entry that takes the prompt up
            self._early.append(event)
            return None
        if not self._view.begun or (event.log_seq and event.log_seq < self._view.begun_seq):
            return None  # of an answer to something else
        return event

    def reached(self, seq: int) -> list[MessageUpdate]:
        """The log was read as far as `seq`: the pieces that waited for that, and perhaps wait on."""
        self.log_seq = seq
        early, self._early = self._early, []
        return early

    def begins(self, piece: MessageUpdate) -> bool:
        """Whether it is the first of another message; one that was begun and not finished was thrown away."""
        if piece.message_id in self._whole or piece.message_id == self._message or piece.n:
            return False
        self._message, self._seen, self._gap = piece.message_id, 0, False
        return True

    def counts(self, piece: MessageUpdate) -> bool:
        """Whether it is the next of its message. Asked once for each piece, after `begins`."""
        if piece.message_id in self._whole or piece.message_id != self._message:
            return False  # its beginning was not heard: the log will have it whole
        self._gap = self._gap or piece.n != self._seen
        self._seen += 1
        return not self._gap

    def skip_rest(self) -> None:
        """No further piece of this message counts."""
        self._gap = True

    def know(self, message_id: str) -> None:
        """The log has this message."""
        self._whole.add(message_id)

    def end(self, message_id: str) -> None:
        """The log has this message, and another one follows, or none."""
        self._whole.add(message_id)
        self._message, self._seen, self._gap = "", 0, False
