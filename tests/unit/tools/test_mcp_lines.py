"""What a command writes comes by whole lines; one that is too long is passed over, and no other."""

from typing import cast

import anyio
import pytest
from anyio.abc import ByteReceiveStream

from fairlead_tools.mcp_servers import received_lines
from fairlead_tools.mcp_servers.received_lines import ReceivedLines


class Output:
    """Gives these pieces, one after the other."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._pieces:
            raise anyio.EndOfStream
        return self._pieces.pop(0)


async def lines_of(*pieces: bytes) -> list[str]:
    received = ReceivedLines(cast("ByteReceiveStream", Output(*pieces)), "utf-8", "replace")
    return "".join([each async for each in received]).splitlines()


@pytest.mark.parametrize(
    ("pieces", "lines"),
    [
        ([b"one\n", b"two\n"], ["one", "two"]),
        ([b"on", b"e\ntw", b"o\nthree\nfo", b"ur\n"], ["one", "two", "three", "four"]),
        ([b"\xc3", b"\xa4\n", b"\xff\n"], ["ä", "\ufffd"]),
        ([b"one\n" + b"x" * 50, b"x" * 51, b"x" * 500, b"x\ntwo\nthr", b"ee\n"], ["one", "two", "three"]),
        ([b"x" * 101, b"\n", b"two\n"], ["two"]),
        ([b"x" * 101, b"x\n" + b"y" * 101, b"y\nthree\n"], ["three"]),
        ([b"x" * 100, b"\n", b"two\n"], ["x" * 100, "two"]),
        ([b"without an end"], []),
    ],
)
async def test_lines_are_whole_and_bounded(
    monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], lines: list[str]
) -> None:
    monkeypatch.setattr(received_lines, "MAX_LINE_CHARS", 100)
    assert await lines_of(*pieces) == lines
