"""Unpacks a body while it arrives, and never more of it than asked for."""

import zlib

ACCEPTED = "gzip, deflate"
_STEP_BYTES = 1 << 16


class EncodingError(ValueError):
    """The body is not what its `Content-Encoding` says, or that is none we asked for."""


class Decoder:
    """One body.

    Args:
        encoding: as the server said; empty for none.

    Raises:
        EncodingError: `encoding` is none of `ACCEPTED`, or more than one.
    """

    def __init__(self, encoding: str, limit_bytes: int) -> None:
        self._encoding = encoding.strip().lower()
        self._limit_bytes = limit_bytes
        self._inflate: zlib._Decompress | None = None
        self.body = bytearray()
        self.full = False
        if self._encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise EncodingError(f"the body is compressed as {self._encoding[:40]!r}, which was not requested")

    def feed(self, data: bytes) -> None:
        """Take in what arrived. Once `full` is true, more would be over the limit and is dropped.

        Raises:
            EncodingError: it cannot be unpacked.
        """
        if self._encoding in ("", "identity"):
            self._keep(data)
            return
        try:
            self._feed_packed(data)
        except zlib.error as error:
            raise EncodingError(f"the body is not {self._encoding}: {error}") from error

    def _feed_packed(self, data: bytes) -> None:
        while data and not self.full:
            if self._inflate is None:
                self._inflate = self._inflater(data)
            inflate = self._inflate
            self._keep(inflate.decompress(data, min(_STEP_BYTES, self._limit_bytes - len(self.body) + 1)))
            data = inflate.unconsumed_tail
            if inflate.eof:  # a gzip file may have several members; whatever else follows is not the body's
                data = inflate.unused_data
                self._inflate = None
                if self._encoding == "deflate" or not data.startswith(b"\x1f\x8b"):
                    return

    def _inflater(self, data: bytes) -> "zlib._Decompress":
        if self._encoding != "deflate":
            return zlib.decompressobj(wbits=31)
        # `deflate` should have zlib's header; some servers leave it out.
        with_header = len(data) >= 2 and data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
        return zlib.decompressobj(wbits=15 if with_header else -15)

    def _keep(self, data: bytes) -> None:
        room = self._limit_bytes - len(self.body)
        self.body += data[:room]
        self.full = self.full or len(data) > room
