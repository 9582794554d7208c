"""What a hostile server may answer `web_fetch` with: it costs little, and opens nothing."""

import asyncio
import gzip
import resource
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

import fairlead_tools.web.page as page_module
from fairlead_tools.web.transport import FetchLimits
from tests.attacks.web_tools import LOCAL, SITE, Fetcher, site
from tests.support.outcomes import text_of
from tests.support.web_victim import Victim, answer, redirect, victim

MIB = 1 << 20


class Pour:
    """A body that never ends. `sent_bytes`: what the client took, and what the sockets hold."""

    def __init__(self, head: str, *, chunked: bool = False) -> None:
        self._head = head.encode() + b"\r\n\r\n"
        self._piece = b"10000\r\n" + b"x" * 65536 + b"\r\n" if chunked else b"x" * 65536
        self.sent_bytes = 0

    async def __call__(self, _: str, writer: asyncio.StreamWriter) -> None:
        writer.write(self._head)
        while True:
            writer.write(self._piece)
            await writer.drain()
            self.sent_bytes += 65536


@pytest.mark.parametrize(
    ("case", "head", "chunked"),
    [
        ("10 GB", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 10000000000", False),
        ("endless chunks", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked", True),
        ("endless until closed", "HTTP/1.1 200 OK\r\nContent-Type: text/plain", False),
    ],
)
async def test_ss_33_endless_body_is_cut_at_the_limit(case: str, head: str, chunked: bool) -> None:
    say = Pour(head, chunked=chunked)
    async with victim(say) as server:
        outcome = await site(server, FetchLimits(20, 5 * MIB)).fetch(f"http://{SITE}:{server.port}/")
    assert not outcome.is_error
    assert (outcome.details["chars"], outcome.details["cut"]) == (5 * MIB, True)
    assert "Only its beginning" in text_of(outcome)
    assert say.sent_bytes < 20 * MIB  # the rest of it is what sockets hold


@pytest.mark.parametrize("what", ["body", "headers", "connection", "tls"])
async def test_ss_33_slow_server_is_given_up_when_the_time_is_over(what: str) -> None:
    async def drip(_: str, writer: asyncio.StreamWriter) -> None:
        if what == "headers":
            writer.write(b"HTTP/1.1 200 OK\r\nX: ")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(30)
        writer.close()

    began = time.monotonic()
    limits = FetchLimits(0.5)
    if what in ("body", "headers"):
        async with victim(drip) as server:
            said = await site(server, limits).refusal(f"http://{SITE}:{server.port}/")
    else:
        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        scheme = "https" if what == "tls" else "http"
        said = await Fetcher([(SITE, port)], LOCAL, limits).refusal(f"{scheme}://{SITE}:{port}/")
        silent.close()
    assert "within 0.5 s" in said
    assert time.monotonic() - began < 20  # the silent one says nothing for 30 s


async def test_ss_33_redirects_share_one_time_limit() -> None:
    async def slowly(path: str, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        await redirect(path + "x")(path, writer)

    async with victim(slowly) as server:
        assert "within 0.5 s" in await site(server, FetchLimits(0.5)).refusal(f"http://{SITE}:{server.port}/")


def bomb(unpacked_bytes: int) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    piece = bytes(MIB)
    return b"".join(packer.compress(piece) for _ in range(unpacked_bytes // MIB)) + packer.flush()


async def test_ss_33_gzip_bomb_is_unpacked_to_the_limit_and_no_further() -> None:
    packed = bomb(100 * MIB)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in (packed, packed + packed, gzip.compress(packed)):
        async with victim(answer(data, "text/plain", "Content-Encoding: gzip")) as server:
            outcome = await site(server).fetch(f"http://{SITE}:{server.port}/")
        assert int(str(outcome.details.get("chars", 0))) <= 5 * MIB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60 * 1024


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("gzip", gzip.compress(b"small and good")),
        ("gzip", gzip.compress(b"small ") + gzip.compress(b"and good")),
        ("gzip", gzip.compress(b"small and good") + b"trailing junk"),
        ("deflate", zlib.compress(b"small and good")),
        ("deflate", zlib.compress(b"small and good")[2:-4]),
        ("identity", b"small and good"),
    ],
    ids=["gzip", "gzip-twice", "gzip-and-more", "deflate", "deflate-raw", "identity"],
)
async def test_ss_33_twin_packed_page_is_unpacked(encoding: str, data: bytes) -> None:
    async with victim(answer(data, "text/plain", f"Content-Encoding: {encoding}")) as server:
        assert "\nsmall and good\n" in await site(server).text(f"http://{SITE}:{server.port}/")
        assert "Accept-Encoding: gzip, deflate\r\n" in server.hits[0]


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip, br", "compress", "x" * 5000])
async def test_ss_33_encoding_that_was_not_asked_for_is_refused(encoding: str) -> None:
    async with victim(answer(b"\x1b\x00\x00" * 10, "text/plain", f"Content-Encoding: {encoding}")) as server:
        assert "was not requested" in await site(server).refusal(f"http://{SITE}:{server.port}/")


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.1 200 OK\r\nX: " + "x" * 100000,
        "HTTP/1.1 200 " + "x" * 100000,
        "x" * 200000,
        "HTTP/1.1 200 OK\r\n" + "\r\n".join(f"X-{n}: 1" for n in range(5000)),
        "HTTP/1.1 200 OK\nX : y\x00z",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6",
        "HTTP/1.1 200 OK\r\nContent-Length: -5",
    ],
    ids=[
        "long header",
        "long status",
        "no HTTP",
        "many headers",
        "odd header",
        "two lengths",
        "negative length",
    ],
)
async def test_ss_33_head_that_is_too_large_or_makes_no_sense_is_refused(head: str) -> None:
    async def say(_: str, writer: asyncio.StreamWriter) -> None:
        writer.write(head.encode() + b"\r\n\r\nhello")
        await writer.drain()

    async with victim(say) as server:
        await site(server, FetchLimits(5)).refusal(f"http://{SITE}:{server.port}/")


async def test_ss_33_endless_headers_are_refused() -> None:
    async def without_gap(path: str, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X: " + b"y" * 1000 + b"\r\n")
            await writer.drain()

    async with victim(without_gap) as server:
        began = time.monotonic()
        await site(server, FetchLimits(20)).refusal(f"http://{SITE}:{server.port}/")
        assert time.monotonic() - began < 10


# -- what a page may do to its reader --------------------------------------


async def test_ss_34_external_entities_are_not_loaded(target: Victim, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("CANARY-XXE")
    attack = (
        f'<?xml version="1.0"?><!DOCTYPE html [<!ENTITY file SYSTEM "file://{secret}">'
        f'<!ENTITY url SYSTEM "http://127.0.0.1:{target.port}/x">'
        f'<!ENTITY % p SYSTEM "http://127.0.0.1:{target.port}/p"> %p;]>'
        '<html xmlns="http://www.w3.org/1999/xhtml" xmlns:xi="http://www.w3.org/2001/XInclude"><body>'
        f'<p>before &file; &url; after</p><xi:include href="file://{secret}" parse="text"/></body></html>'
    )
    for media_type in ("text/html", "application/xhtml+xml", "application/xml", "text/xml", "image/svg+xml"):
        async with victim(answer(attack, media_type)) as server:
            outcome = await site(server).fetch(f"http://{SITE}:{server.port}/")
        assert "CANARY-XXE" not in text_of(outcome)
    assert target.connections == 0


async def test_ss_34_twin_page_of_the_same_kind_is_read() -> None:
    page = (
        '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml">'
        "<body><p>before after</p></body></html>"
    )
    async with victim(answer(page, "application/xhtml+xml")) as server:
        assert "before after" in await site(server).text(f"http://{SITE}:{server.port}/")


async def test_ss_34_entity_bomb_costs_little() -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 50}">' for n in range(1, 9))
    kind = f'<?xml version="1.0"?><!DOCTYPE html [<!ENTITY e0 "ha">{entities}]>'
    page = f"{kind}<html><body><p>&e8;</p></body></html>"
    began = time.monotonic()
    async with victim(answer(page, "application/xhtml+xml")) as server:
        await site(server).fetch(f"http://{SITE}:{server.port}/")
    assert time.monotonic() - began < 15


@pytest.mark.parametrize(
    ("media_type", "body", "why"),
    [
        ("application/pdf", b"<html><body>no pdf</body></html>", "cannot be shown"),
        ("application/pdf", b"%PDF-1.7\nnothing of it", "cannot be read"),
        ("image/png", b"<html>no picture</html>", "is declared as image/png, and is not"),
        ("image/webp", b"RIFF\0\0\0\0AVI ", "is declared as image/webp, and is not"),
        ("application/zip", b"PK\x03\x04", "cannot be shown as text"),
        ("", b"\0\1\2\3" * 100, "cannot be shown as text"),
        ("application/octet-stream", b"\x7fELF\0\0", "cannot be shown as text"),
    ],
)
async def test_ss_34_lie_about_the_content_type_gains_nothing(media_type: str, body: bytes, why: str) -> None:
    async with victim(answer(body, media_type)) as server:
        assert why in await site(server).refusal(f"http://{SITE}:{server.port}/")


def test_ss_34_parser_can_open_neither_files_nor_sockets_once_it_reads_a_page() -> None:
    program = (
        "import sys, socket; sys.path.insert(0, sys.argv[1]); import extract\n"
        "extract._confine({'memory_bytes': 1 << 30, 'cpu_s': 10, 'reply_bytes': 1 << 20})\n"
        "import os\n"
        "for attempt in (lambda: open('/etc/passwd'), lambda: socket.socket(), lambda: os.pipe()):\n"
        "    try: attempt()\n"
        "    except OSError as error: print(error.errno)\n"
        "    else: print('opened')\n"
    )
    folder = Path(page_module.__file__).parent
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, str(folder)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.split() == ["24", "24", "24"]
