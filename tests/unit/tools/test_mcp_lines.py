"""What a command writes comes by whole lines; one that is too long is passed over, and no other."""

import json
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


@pytest.mark.parametrize(
    ("line", "request_id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"text":"%s"}}', 7),
        (b'{ "id" : "a-7", "jsonrpc": "2.0", "result": {"text": "%s"}}', "a-7"),
        (b'{"result":{"text":"%s"},"jsonrpc":"2.0","id":7}', 7),
        (b'{"result":{"text":"%s"},"id":7,"jsonrpc":"2.0"}\r', 7),
        (b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%s","id":7}}', None),
        (b'{"jsonrpc":"2.0","id":["%s"],"result":{}}', None),
    ],
)
async def test_an_answer_that_is_too_long_becomes_an_error_for_its_request(
    monkeypatch: pytest.MonkeyPatch, line: bytes, request_id: int | str | None
) -> None:
    monkeypatch.setattr(received_lines, "MAX_LINE_CHARS", 1000)
    begin, _, end = (line % b"y").partition(b"y")
    found = await lines_of(b"one\n" + begin, *[b"y" * 200] * 10, end + b"\ntwo\nth", b"ree\n")
    assert (found[0], found[-2:]) == ("one", ["two", "three"])
    errors = [json.loads(each) for each in found[1:-2]]
    assert [each["id"] for each in errors] == ([] if request_id is None else [request_id])
    assert all("more than 32 Mi characters" in each["error"]["message"] for each in errors)
