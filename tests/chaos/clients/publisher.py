"""A plain NATS publisher, as other systems have one: a key in the subject, repeated until acknowledged.

It knows the subject, the answer of JetStream and nothing else. What it sends stands in the driver's journal.
"""

import asyncio
import json
import random
import time
from pathlib import Path

import nats
import nats.errors
from nats.aio.client import Client

from tests.chaos.driver import Driver
from tests.chaos.evidence import Journal

ATTEMPT_S = 1.5
PATIENCE_S = 30.0


class Publisher:
    """Alerts for one session, some of them sent twice though the first was acknowledged."""

    def __init__(
        self, context: dict[str, str], folder: Path, seed: int, driver: Driver, session: str
    ) -> None:
        self._context = context
        self._journal = Journal(folder / "client.jsonl")
        self._driver = driver
        self._session = session
        self._seed = seed
        self._random = random.Random(f"publisher-{seed}")

    async def talk(self, seconds: float) -> None:
        """Publish until the time is over."""
        options = {"nkeys_seed": self._context["nkey"]} if "nkey" in self._context else {}
        prefix = self._context.get("inbox_prefix", "_INBOX")
        client = await nats.connect(
            self._context["url"],
            inbox_prefix=prefix,
            connect_timeout=5,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,
            error_cb=_ignore,
            **options,
        )
        try:
            deadline = time.monotonic() + seconds
            number = 0
            while time.monotonic() < deadline:
                number += 1
                await self._alert(client, f"N{self._seed}-{number}")
                await asyncio.sleep(self._random.random() * 0.6)
        finally:
            await client.close()

    async def _alert(self, client: Client, name: str) -> None:
        key = f"alert-{name}"
        text = f"op={name} steps=1 sleep={self._random.random() * 0.3:.2f}"
        about = {"action": "prompt", "session": self._session, "key": key, "name": name, "plain": True}
        subject = f"fairlead.session.{self._session}.in.prompt.{key}"
        self._journal.write({"event": "send", **about})
        for _ in range(2 if self._random.random() < 0.3 else 1):
            if seq := await self._until_acknowledged(client, subject, text):
                self._journal.write({"event": "ok", "seq": seq, **about})
                self._driver.accepted(self._session, key)
            else:
                self._journal.write({"event": "unknown", **about})

    async def _until_acknowledged(self, client: Client, subject: str, text: str) -> int:
        """The sequence that JetStream told; 0 if it never did."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                answer = await client.request(subject, text.encode(), timeout=ATTEMPT_S)
                return int(json.loads(answer.data)["seq"])
            except (nats.errors.Error, OSError, TimeoutError, KeyError):
                await asyncio.sleep(0.1)
        return 0


async def _ignore(_: Exception) -> None:
    """Connections break all the time here."""
