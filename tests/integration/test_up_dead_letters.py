"""Dead letters put back while the gateway is killed: each message comes back once."""

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from itertools import zip_longest
from pathlib import Path

import nats
import pytest

from fairlead_common.protocol import subjects
from tests.support.fairlead_up import FairleadUp
from tests.support.scripted_model import ModelProcess

SESSIONS = 6
KILLED_AFTER_S = (
    0.0,
    0.004,
    0.008,
    0.016,
)  # of a request; the next start of a gateway waits longer each time


@pytest.fixture
def up(tmp_path: Path) -> Iterator[FairleadUp]:
    with ModelProcess(tmp_path / "model.jsonl", fsync=False) as model:
        environ = {"FAIRLEAD_MODEL": "openai/scripted", "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "x"}
        with FairleadUp(tmp_path / "home", environ=environ) as made:
            yield made


async def lay_aside(up: FairleadUp, seqs: dict[str, int]) -> None:
    """Two dead letters about each message, as an owner leaves that died in between."""
    context = json.loads(up.cli("nats", "--json").stdout)
    owner = await nats.connect(context["url"], nkeys_seed=context["nkey"])
    for session, seq in seqs.items():
        about = {"subject": subjects.mail(session, "prompt", "k"), "seq": seq, "reason": "why", "payload": ""}
        for _ in range(2):
            await owner.jetstream().publish(subjects.dead("sessions"), json.dumps(about).encode())
    await owner.close()


def settled(up: FairleadUp, letter: int) -> int:
    """The status that a client ends with that repeats its request until it is answered."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            status, _ = up.call("POST", f"/api/dead/{letter}/retry", {}, timeout_s=5.0)
        except (OSError, HTTPException):
            status = 0
        if status in (200, 404):
            return status
        time.sleep(0.02)
    raise AssertionError(f"dead letter {letter} was not settled\n{up.tail()}")


def test_each_message_comes_back_once_however_often_the_gateway_is_killed(up: FairleadUp) -> None:
    seqs = {f"s{n}": up.prompt(up.session(id=f"s{n}"), f"op=P{n}", key="k")["seq"] for n in range(SESSIONS)}
    for session in seqs:
        up.wait_idle(session)
    asyncio.run(lay_aside(up, seqs))
    letters = [each["id"] for each in up.api("GET", "/api/dead")["letters"]]
    assert len(letters) == 2 * SESSIONS
    for letter, delay_s in zip_longest(letters, KILLED_AFTER_S):
        with ThreadPoolExecutor() as clients:
            asking = clients.submit(settled, up, letter)
            if delay_s is not None:
                time.sleep(delay_s)
                up.kill("gateway")
                up.wait_restarted("gateway", timeout_s=40)
                up.wait_ready()
            assert asking.result() in (200, 404)
    up.wait_ready()
    assert up.api("GET", "/api/dead")["letters"] == []
    for session, name in zip(seqs, (f"op=P{n}" for n in range(SESSIONS)), strict=True):
        up.wait_idle(session)
        said = [
            each for each in up.entries(session) if name in json.dumps(each) and '"user"' in json.dumps(each)
        ]
        assert len(said) == 2, (session, said)
