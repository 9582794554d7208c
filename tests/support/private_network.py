"""A network of its own for one program: real names, real public addresses, and nothing of the Internet.

    unshare --user --map-root-user --net --mount python -m tests.support.private_network

Sets up, in the namespaces it was started in: a DNS server on 127.0.0.1:53 that `/etc/resolv.conf` names, and
a second machine (another namespace, behind a cable) with a web server at 93.184.216.34, 10.9.9.9 and
169.254.169.254. Then fetches what each line of standard input names, and prints what came of it and who was
asked for what.
"""

import asyncio
import contextlib
import ipaddress
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PUBLIC, PRIVATE, METADATA, OWN = "93.184.216.34", "10.9.9.9", "169.254.169.254", "198.41.0.4"
# name: answers to the first, second, ... question for an A record; the last one stays
NAMES = {
    "public.example": [[PUBLIC]],
    "private.example": [[PRIVATE]],
    "metadata.example": [[METADATA]],
    "mixed.example": [[PUBLIC, PRIVATE]],
    "rebind.example": [[PUBLIC], [PRIVATE]],
    "rebind2.example": [[PUBLIC], [PRIVATE]],
    "own.example": [[OWN]],
}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=10)


class Dns(threading.Thread):
    """Answers A questions from NAMES with a time to live of zero, and all others with nothing."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.asked: list[str] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))

    def run(self) -> None:
        while True:
            question, sender = self._socket.recvfrom(512)
            self._socket.sendto(self._answer(question), sender)

    def _answer(self, question: bytes) -> bytes:
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode().lower())
            at += 1 + question[at]
        kind = struct.unpack(">H", question[at + 1 : at + 3])[0]
        name = ".".join(labels)
        records: list[bytes] = []
        if kind == 1 and name in NAMES:
            answers = NAMES[name]
            turn = min(self.asked.count(name), len(answers) - 1)
            self.asked.append(name)
            head = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4)
            records = [head + socket.inet_aton(address) for address in answers[turn]]
        code = 0x8180 if name in NAMES else 0x8183
        head = question[:2] + struct.pack(">HHHHH", code, 1, len(records), 0, 0)
        return head + question[12 : at + 5] + b"".join(records)


class Page(BaseHTTPRequestHandler):
    """Says at which address it was reached, and writes that down."""

    def do_GET(self) -> None:
        at = self.connection.getsockname()[0]
        with open(os.environ["HITS"], "a") as hits:
            hits.write(f"{at} {self.headers['Host']} {self.path}\n")
        body = f"reached at {at}".encode()
        if self.path == "/door":
            self.send_response(302)
            self.send_header("Location", f"http://{METADATA}/latest")
        else:
            self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


def serve() -> None:
    """A web server on all addresses, until its standard input ends."""
    server = ThreadingHTTPServer(("0.0.0.0", 80), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("serving", flush=True)
    sys.stdin.read()


def replace(path: str, text: str) -> None:
    """Put another file over one of the machine's, in this mount namespace only."""
    if not os.path.exists(path):
        return
    with tempfile.NamedTemporaryFile("w") as other:
        other.write(text)
        other.flush()
        subprocess.run(["mount", "--bind", other.name, path], check=True, timeout=10)


def set_up() -> Dns:
    ip("link", "set", "lo", "up")
    replace("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n")
    replace("/etc/nsswitch.conf", "hosts: files dns\n")  # not a resolver of the whole machine
    return Dns()


def cable(other: int) -> None:
    """Between this machine and the one of process `other`."""
    ip("link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(other))
    ip("address", "add", f"{OWN}/32", "dev", "here")
    ip("link", "set", "here", "up")
    inside = ["nsenter", "--target", str(other), "--net", "ip"]
    for words in (["link", "set", "lo", "up"], ["link", "set", "there", "up"]):
        subprocess.run([*inside, *words], check=True, timeout=10)
    for address in (PUBLIC, PRIVATE, METADATA):
        subprocess.run([*inside, "address", "add", f"{address}/32", "dev", "there"], check=True, timeout=10)
        ip("route", "add", address, "dev", "here")
    subprocess.run([*inside, "route", "add", OWN, "dev", "there"], check=True, timeout=10)


def naive(url: str) -> str:
    """What a client reaches that checks the name, and then connects to the name."""
    name = urllib.parse.urlsplit(url).hostname
    for info in socket.getaddrinfo(name, 80, family=socket.AF_INET, type=socket.SOCK_STREAM):
        assert ipaddress.ip_address(info[4][0]).is_global
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


async def main() -> None:
    from tests.attacks.web_tools import Fetcher
    from tests.support.outcomes import text_of

    dns = set_up()
    dns.start()
    with contextlib.ExitStack() as stack:
        for place in ([], ["unshare", "--net"]):  # the victim on this machine, and the other machine
            command = [
                *place,
                sys.executable,
                "-c",
                "from tests.support import private_network as p; p.serve()",
            ]
            server = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )
            assert server.stdout is not None
            assert server.stdout.readline() == b"serving\n"
            if place:
                cable(server.pid)
        results = {}
        for url in sys.stdin.read().split():
            if url.startswith("naive:"):
                results[url] = ("ok", naive(url.removeprefix("naive:")))
                continue
            outcome = await Fetcher().fetch(url)
            results[url] = (outcome.status, text_of(outcome))
        print(json.dumps({"results": results, "asked": dns.asked}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
