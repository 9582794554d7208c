"""Prompts to a deployment, and what became of them."""

import asyncio
import re
import time
from typing import Any, NamedTuple

from tests.chaos.api import PATIENCE_S, Api

Json = dict[str, Any]


class Told(NamedTuple):
    """What the log of a session says after its run.

    Fields:
        outcomes: of its runs. statuses: of its tool calls. answer: the last words.
    """

    outcomes: list[str]
    statuses: list[str]
    answer: str


async def ask(
    gateway: Api, session: str, text: str, *, agent: str = "main", patience_s: float = PATIENCE_S
) -> None:
    """Have a session and a prompt accepted; safe where answers get lost, because the key makes it one."""
    made = await gateway.request(
        "POST", "/api/sessions", {"id": session, "agent": agent}, patience_s=patience_s
    )
    assert made.accepted or made.status == 409, made
    body = {"text": text, "key": f"k-{session}"}
    sent = await gateway.request("POST", f"/api/sessions/{session}/prompt", body, patience_s=patience_s)
    assert sent.status == 202, sent


async def told(gateway: Api, session: str, *, within_s: float = 60.0, runs: int = 1) -> Told:
    """What came of it, once so many runs have ended.

    Raises:
        AssertionError: it did not end in time.
    """
    end = time.monotonic() + within_s
    while True:
        answer = await gateway.request("GET", f"/api/sessions/{session}/entries?limit=200")
        entries: list[Json] = answer.body["entries"] if answer.accepted else []
        outcomes = [each["outcome"] for each in entries if each.get("type") == "run_end"]
        if len(outcomes) >= runs:
            messages = [each["message"] for each in entries if each.get("type") == "message"]
            results = [each["outcome"]["status"] for each in messages if each["role"] == "tool_result"]
            said = [_text(each) for each in messages if each["role"] == "assistant"]
            return Told(outcomes, results, said[-1] if said else "")
        assert time.monotonic() < end, f"{session} did not end within {within_s} s: {str(entries)[-1500:]}"
        await asyncio.sleep(0.1)


def _text(message: Json) -> str:
    content = message.get("content") or []
    return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))


def count(lines: str, word: str) -> int:
    """How often a line is exactly this word."""
    return len(re.findall(rf"^{re.escape(word)}$", lines, re.MULTILINE))
