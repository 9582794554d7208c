"""Sessions and prompts over HTTP: accepted means stored, and the same intent is stored once."""

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_common.bus import Bus
from fairlead_common.bus.objects import Objects
from fairlead_common.protocol import subjects
from fairlead_common.protocol.content import TextBlock, UserMessage
from fairlead_common.protocol.entries import MessageEntry
from fairlead_common.protocol.mail import decode_mail
from fairlead_common.protocol.messages import PromptOptions, RunLimitsInput, UserInput
from tests.integration.gateway_fixture import FakeAgent, RunningGateway, running_gateway
from tests.support.nats_server import NatsServer


async def stored(bus: Bus, session: str) -> list[str]:
    return [record.subject async for record in bus.read(subjects.SESSIONS, subjects.session_all(session))]


@pytest.mark.smoke
async def test_session_exists_once(gateway: RunningGateway, bus: Bus) -> None:
    status, made = await gateway.call(
        "POST", "/api/sessions", {"id": "one", "title": "First", "mode": "safe", "agent": "main"}
    )
    assert status == 201
    assert made["id"] == "one"
    assert made["title"] == "First"
    assert made["status"] == "idle"
    counts = ("input_tokens", "output_tokens", "cache_read_tokens", "cost_usd", "unpriced_replies")
    assert made["usage"] == dict.fromkeys(counts, 0)
    assert "deleted" not in made
    assert await stored(bus, "one") == ["fairlead.session.one.in.notice.create"]
    status, body = await gateway.call(
        "POST", "/api/sessions", {"id": "one", "title": "First", "mode": "safe"}
    )
    assert (status, body["error"]["code"]) == (409, "conflict")
    status, found = await gateway.call("GET", "/api/sessions/one")
    assert status == 200
    assert found == {**made, "created_at": found["created_at"], "updated_at": found["updated_at"]}
    assert abs(found["created_at"] - made["created_at"]) < 5000
    _, page = await gateway.call("GET", "/api/sessions")
    assert [session["id"] for session in page["sessions"]] == ["one"]
    await FakeAgent(bus, "one").list_as(title="Better", updated_at=7)
    async with asyncio.timeout(20):
        while (await gateway.call("GET", "/api/sessions/one"))[1]["title"] != "Better":
            await asyncio.sleep(0.01)


async def test_id_of_a_session_that_only_got_a_prompt_is_taken(gateway: RunningGateway, bus: Bus) -> None:
    await bus.publish("fairlead.prompt.taken", b"hello")
    status, _ = await gateway.call("POST", "/api/sessions", {"id": "taken"})
    assert status == 409
    assert (await gateway.call("GET", "/api/sessions/taken"))[0] == 200


@pytest.mark.smoke
async def test_of_many_that_make_the_same_session_one_succeeds(gateway: RunningGateway) -> None:
    answers = await asyncio.gather(
        *(gateway.call("POST", "/api/sessions", {"id": "race"}) for _ in range(20))
    )
    assert sorted(status for status, _ in answers) == [201] + [409] * 19


@pytest.mark.smoke
async def test_same_key_and_words_are_one_prompt(gateway: RunningGateway, bus: Bus) -> None:
    session = await gateway.session()
    path = f"/api/sessions/{session}/prompt"
    answers = await asyncio.gather(
        *(gateway.call("POST", path, {"text": "hello", "key": "k1"}) for _ in range(20))
    )
    assert {status for status, _ in answers} == {202}
    assert len({body["seq"] for _, body in answers}) == 1
    by_header = await gateway.call("POST", path, {"text": "hello"}, headers={"Idempotency-Key": "k1"})
    assert by_header == answers[0]
    assert (await stored(bus, session)).count(f"fairlead.session.{session}.in.prompt.k1") == 1


async def test_key_with_other_words_is_a_conflict(gateway: RunningGateway) -> None:
    session = await gateway.session()
    path = f"/api/sessions/{session}/prompt"
    assert (await gateway.call("POST", path, {"text": "hello", "key": "k1"}))[0] == 202
    status, body = await gateway.call("POST", path, {"text": "hello!", "key": "k1"})
    assert (status, body["error"]["field"]) == (409, "key")
    big = "x" * 700_000
    assert (await gateway.call("POST", path, {"text": big, "key": "k2"}))[0] == 202
    assert (await gateway.call("POST", path, {"text": big, "key": "k2"}))[0] == 202
    assert (await gateway.call("POST", path, {"text": big + "y", "key": "k2"}))[0] == 409


async def test_without_a_key_each_request_is_a_prompt(gateway: RunningGateway, bus: Bus) -> None:
    session = await gateway.session()
    path = f"/api/sessions/{session}/prompt"
    answers = [await gateway.call("POST", path, {"text": "again"}) for _ in range(3)]
    assert len({body["key"] for _, body in answers}) == 3
    assert len(await stored(bus, session)) == 4


async def test_two_different_keys_are_refused(gateway: RunningGateway) -> None:
    session = await gateway.session()
    path = f"/api/sessions/{session}/prompt"
    body = {"text": "x", "key": "a"}
    assert (await gateway.call("POST", path, body, headers={"Idempotency-Key": "b"}))[0] == 400
    assert (await gateway.call("POST", path, body, headers={"Idempotency-Key": "a"}))[0] == 202
    assert (await gateway.call("POST", path, body, headers={"Idempotency-Key": "a.b"}))[0] == 400


async def test_large_prompt_and_attachment_arrive_whole(gateway: RunningGateway, bus: Bus) -> None:
    session = await gateway.session()
    text = "ö" * 400_000
    body = {
        "text": text,
        "attachments": [{"name": "a b.txt", "media_type": "text/plain", "data": "aGVsbG8="}],
    }
    status, answer = await gateway.call("POST", f"/api/sessions/{session}/prompt", body)
    assert status == 202, answer
    record = await bus.last(subjects.SESSIONS, subjects.mail(session, "prompt", answer["key"]))
    assert record is not None
    assert record.seq == answer["seq"]
    mail = decode_mail("prompt", answer["key"], await Objects(bus).unpack(record.data, record.headers))
    assert isinstance(mail, UserInput)
    assert mail.text == text
    assert mail.sender == "admin"
    assert (mail.attachments[0].name, mail.attachments[0].size_bytes) == ("a b.txt", 5)
    download = await gateway.http.get(f"/api/objects/{mail.attachments[0].object}")
    assert download.content == b"hello"
    assert download.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in download.headers["content-security-policy"]
    assert download.headers["x-content-type-options"] == "nosniff"
    assert (await gateway.call("GET", f"/api/objects/{'0' * 64}"))[0] == 404


async def test_steer_followup_abort_drop_and_change_are_mail(gateway: RunningGateway, bus: Bus) -> None:
    session = await gateway.session()
    base = f"/api/sessions/{session}"
    for kind in ("steer", "followup"):
        status, body = await gateway.call("POST", f"{base}/{kind}", {"text": kind, "key": "k"})
        assert (status, body["key"]) == (202, "k")
    assert (await gateway.call("POST", f"{base}/abort"))[0] == 202
    assert (await gateway.call("POST", f"{base}/abort", {"reason": "enough"}))[0] == 202
    assert (await gateway.call("DELETE", f"{base}/queue/item-1"))[0] == 202
    assert (await gateway.call("PATCH", base, {"title": "New", "mode": "allow-all"}))[0] == 202
    found = await stored(bus, session)
    kinds = [subject.split(".")[4] for subject in found]
    assert kinds == ["notice", "steer", "followup", "abort", "abort", "abort", "notice"]
    last = await bus.last(subjects.SESSIONS, found[-1])
    assert last is not None
    assert json.loads(last.data) == {"mode": "allow-all", "title": "New", "sender": "admin"}


async def test_a_prompt_may_have_a_model_thinking_and_limits(gateway: RunningGateway, bus: Bus) -> None:
    session = await gateway.session()
    base = f"/api/sessions/{session}"
    limits = {"usd": 0.5, "tokens": 1000, "turns": 3, "seconds": 60}
    asked = {"model": "anthropic/claude-x", "thinking": "max", "limits": limits, "on_approval": "deny"}
    for kind in ("prompt", "followup"):
        status, answer = await gateway.call("POST", f"{base}/{kind}", {"text": "x", **asked})
        assert status == 202, answer
        record = await bus.last(subjects.SESSIONS, subjects.mail(session, kind, answer["key"]))
        assert record is not None
        mail = decode_mail(kind, answer["key"], record.data)
        assert isinstance(mail, UserInput)
        assert mail.options == PromptOptions(
            model="anthropic/claude-x",
            thinking="max",
            limits=msgspec.convert(limits, RunLimitsInput),
            on_approval="deny",
        )
    before = await stored(bus, session)
    for wrong, field, text in (
        ({"model": "gpt-5"}, "model", "must be demo, openai/<model>"),
        ({"thinking": "deep"}, "thinking", "must be one of off, minimal, low, medium, high, xhigh, max"),
        ({"on_approval": "allow"}, "on_approval", "must be one of ask, deny"),
        ({"limits": {"turns": 0}}, "limits.turns", "got 0"),
        ({"limits": {"usd": -1}}, "limits.usd", "got -1"),
        ({"limits": {"euro": 1}}, "limits.euro", "unknown field"),
    ):
        status, answer = await gateway.call("POST", f"{base}/prompt", {"text": "x", **wrong})
        assert (status, answer["error"].get("field")) == (400, field), answer
        assert text in answer["error"]["message"]
    assert (await gateway.call("POST", f"{base}/steer", {"text": "x", "model": "demo"}))[0] == 400
    assert await stored(bus, session) == before
    for model in ("gpt-5", "opnai/gpt-5", "openai/", ""):
        status, answer = await gateway.call("PATCH", base, {"model": model})
        assert (status, answer["error"]["field"]) == (400, "model"), answer
        assert "must be demo, openai/<model>" in answer["error"]["message"]
    assert await stored(bus, session) == before
    assert (await gateway.call("PATCH", base, {"model": "openai/that-no-list-knows"}))[0] == 202
    assert (await gateway.call("PATCH", base, {"thinking": "high"}))[0] == 202
    assert (await gateway.call("PATCH", base, {"thinking": "", "on_approval": ""}))[0] == 202
    status, answer = await gateway.call("PATCH", base, {"thinking": "deep"})
    assert (status, answer["error"]["field"]) == (400, "thinking")


async def test_a_change_asks_once_whether_the_session_is_there(
    gateway: RunningGateway, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await gateway.session()
    known = await bus.last(subjects.SESSIONS, subjects.session_all(session))
    asked: list[str] = []
    last = gateway.bus.last

    async def counted(stream: str, subject: str, **options: Any) -> Any:
        asked.append(subject)
        return await last(stream, subject, **options)

    monkeypatch.setattr(gateway.bus, "last", counted)
    status, answer = await gateway.call("PATCH", f"/api/sessions/{session}", {"title": "New"})
    assert status == 202, answer
    assert asked.count(subjects.session_all(session)) == 1
    newest = await bus.last(subjects.SESSIONS, subjects.session_all(session))
    assert newest is not None
    assert known is not None
    assert int(newest.headers[subjects.H_SEEN]) == known.seq


async def test_a_retry_is_one_mail_however_often_it_is_sent(gateway: RunningGateway, bus: Bus) -> None:
    session = await gateway.session()
    first = await gateway.call("POST", f"/api/sessions/{session}/retry", {"key": "again"})
    assert first[0] == 202
    assert await gateway.call("POST", f"/api/sessions/{session}/retry", {"key": "again"}) == first
    assert (await gateway.call("POST", f"/api/sessions/{session}/retry"))[0] == 202
    names = [subject.rpartition(".")[2] for subject in await stored(bus, session)]
    assert names[:2] == ["create", "retry-again"]
    assert len(names) == 3


ROUTES = [
    ("GET", ""),
    ("PATCH", ""),
    ("DELETE", ""),
    ("POST", "/prompt"),
    ("POST", "/steer"),
    ("POST", "/followup"),
    ("POST", "/abort"),
    ("POST", "/retry"),
    ("DELETE", "/queue/x"),
    ("GET", "/entries"),
    ("GET", "/events"),
]


async def test_unknown_session_is_404_and_stays_unknown(gateway: RunningGateway, bus: Bus) -> None:
    for method, path in ROUTES:
        body = (
            {"text": "x"} if path in ("/prompt", "/steer", "/followup") else {} if method == "PATCH" else None
        )
        status, answer = await gateway.call(method, f"/api/sessions/nobody{path}", body)
        assert (status, answer["error"]["code"]) == (404, "not_found")
        assert await stored(bus, "nobody") == []


NO_IDS = ["*", "%3E", "a.b", "a%20b", "%F0%9F%98%80", "a%00", "a%0d%0ab", "x" * 65]


async def test_id_that_is_no_token_is_400(gateway: RunningGateway) -> None:
    for name, (method, path) in product(
        NO_IDS, (("GET", ""), ("POST", "/prompt"), ("GET", "/events"), ("GET", "/entries"))
    ):
        body = {"text": "x"} if method == "POST" else None
        status, answer = await gateway.call(method, f"/api/sessions/{name}{path}", body)
        assert status == 400, (method, path, answer)
        assert answer["error"]["field"] == "session"


BAD_BODIES: list[tuple[bytes, str]] = [
    (b"", "body"),
    (b"{", "body"),
    (b"nonsense", "body"),
    (b"[]", "body"),
    (b"null", "body"),
    (b"{}", "text"),
    (b'{"text": 1}', "text"),
    (b'{"text": null}', "text"),
    (b'{"text": ""}', "text"),
    (b'{"text": "  \\n"}', "text"),
    (b'{"text": NaN}', "body"),
    (b'{"text": "x", "role": "admin"}', "role"),
    (b'{"text": "x", "approved": true}', "approved"),
    (b'{"text": "x", "key": "a.b"}', "key"),
    (b'{"text": "x", "key": "a\\n"}', "key"),
    (b'{"text": "x", "key": ""}', "key"),
    (b'{"text": "x", "key": 7}', "key"),
    (b'{"text": "\\ud800"}', "body"),
    (b'{"text": "\xff"}', "body"),
    (b'{"text": "x", "attachments": {}}', "attachments"),
    (
        b'{"text": "x", "attachments": [{"name": "a", "media_type": "a/b", "data": "%%"}]}',
        "attachments[0].data",
    ),
    (
        b'{"text": "x", "attachments": [{"name": "../a", "media_type": "a/b", "data": ""}]}',
        "attachments[0].name",
    ),
    (
        b'{"text": "x", "attachments": [{"name": "a", "media_type": "a", "data": ""}]}',
        "attachments[0].media_type",
    ),
    (b'{"text": "x", "attachments": [{"name": "a", "media_type": "a/b"}]}', "attachments[0].data"),
    (b'{"text": ' + b"[" * 20_000, "text"),
    (b'{"a":' * 20_000, "a"),
    (b"[" * 20_000, "body"),
]


async def test_bad_body_is_400_and_names_the_field(gateway: RunningGateway, bus: Bus) -> None:
    session = await gateway.session()
    before = await stored(bus, session)
    for body, field in BAD_BODIES:
        status, answer = await gateway.call("POST", f"/api/sessions/{session}/prompt", body)
        assert (status, answer["error"].get("field")) == (400, field), (body[:80], answer)
        assert field.split("[")[0] in answer["error"]["message"]
    assert await stored(bus, session) == before


async def test_limits_are_named_with_the_actual_value(gateway: RunningGateway) -> None:
    session = await gateway.session()
    status, answer = await gateway.call("PATCH", f"/api/sessions/{session}", {"mode": "yolo"})
    assert status == 400
    assert "safe, ask, allow-all" in answer["error"]["message"]
    assert "yolo" in answer["error"]["message"]
    status, answer = await gateway.call("PATCH", f"/api/sessions/{session}", {"title": "x" * 501})
    assert "500" in answer["error"]["message"]
    assert "501" in answer["error"]["message"]
    status, answer = await gateway.call("GET", f"/api/sessions/{session}/entries?limit=5000")
    assert (status, answer["error"]["field"]) == (400, "limit")
    assert "1000" in answer["error"]["message"]
    assert "5000" in answer["error"]["message"]
    status, answer = await gateway.call("POST", "/api/sessions", {"agent": "nobody"})
    assert (status, answer["error"]["field"]) == (400, "agent")
    for query in ("limit=x", "limit=1&limit=2", "bofore=1", "after=-1", "before=-1", "after=1e3"):
        status, answer = await gateway.call("GET", f"/api/sessions/{session}/entries?{query}")
        assert status == 400, query


async def test_too_large_body_is_413_with_both_sizes(gateway: RunningGateway) -> None:
    session = await gateway.session()
    path = f"/api/sessions/{session}/abort"
    status, answer = await gateway.call("POST", path, b'{"text": "' + b"x" * (4 << 20) + b'"}')
    assert status == 413
    assert str(4 << 20) in answer["error"]["message"]
    assert str((4 << 20) + 12) in answer["error"]["message"]
    path = f"/api/sessions/{session}/prompt"  # which may bring files
    status, answer = await gateway.call("POST", path, b'{"text": "' + b"x" * (32 << 20) + b'"}')
    assert status == 413
    assert f"at most {32 << 20} bytes (setting gateway.max_upload_bytes)" in answer["error"]["message"]
    status, answer = await gateway.call("POST", path, b'{"text": "' + b"x" * (4 << 20) + b'"}')
    assert (status, answer["error"]["field"]) == (400, "text")

    async def undeclared() -> AsyncIterator[bytes]:
        for _ in range(600):
            yield b" " * 65_536

    response = await gateway.http.post(path, content=undeclared())
    assert response.status_code == 413


async def test_full_stream_is_507_and_nothing_was_accepted(gateway: RunningGateway, bus: Bus) -> None:
    session = await gateway.session()
    info: Any = await bus.api("STREAM.INFO.SESSIONS")
    full = {**info["config"], "max_msgs": info["state"]["messages"]}
    await bus.api("STREAM.UPDATE.SESSIONS", full)
    status, answer = await gateway.call("POST", f"/api/sessions/{session}/prompt", {"text": "x", "key": "k"})
    assert (status, answer["error"]["code"]) == (507, "storage_full")
    assert await stored(bus, session) == [f"fairlead.session.{session}.in.notice.create"]
    await bus.api("STREAM.UPDATE.SESSIONS", info["config"])
    assert (await gateway.call("POST", f"/api/sessions/{session}/prompt", {"text": "x", "key": "k"}))[
        0
    ] == 202


async def test_without_nats_a_prompt_is_503_and_never_stored(
    gateway: RunningGateway, bus: Bus, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_gateway.gateway.ANSWER_WITHIN_S", 1.0)
    session = await gateway.session()
    nats_server.kill()
    response = await gateway.http.post(f"/api/sessions/{session}/prompt", content='{"text": "x", "key": "k"}')
    assert response.status_code == 503
    assert response.headers["retry-after"]
    assert (await gateway.call("GET", "/healthz"))[0] == 200
    status, answer = await gateway.call("GET", "/readyz")
    assert status == 503
    assert "bus" in answer["missing"]
    nats_server.start()
    async with asyncio.timeout(20):
        while not gateway.bus.connected or not bus.connected:
            await asyncio.sleep(0.05)
    assert await stored(bus, session) == [f"fairlead.session.{session}.in.notice.create"]
    assert (await gateway.call("POST", f"/api/sessions/{session}/prompt", {"text": "x", "key": "k"}))[
        0
    ] == 202


async def test_prompt_survives_a_restart_of_nats_within_the_request(
    gateway: RunningGateway, bus: Bus, nats_server: NatsServer
) -> None:
    session = await gateway.session()
    nats_server.kill()
    asking = asyncio.create_task(
        gateway.call("POST", f"/api/sessions/{session}/prompt", {"text": "x", "key": "k"})
    )
    await asyncio.sleep(0.3)
    nats_server.start()
    status, _ = await asking
    assert status == 202
    assert (await stored(bus, session)).count(f"fairlead.session.{session}.in.prompt.k") == 1


async def test_deleted_session_is_204_once_nothing_is_stored(gateway: RunningGateway, bus: Bus) -> None:
    session = await gateway.session()
    agent = FakeAgent(bus, session)
    await agent.list_as(title="x", updated_at=5)
    asking = asyncio.create_task(gateway.call("DELETE", f"/api/sessions/{session}"))
    async with asyncio.timeout(20):
        while await bus.last(subjects.SESSIONS, subjects.mail(session, "notice", "delete")) is None:
            await asyncio.sleep(0.01)
    assert not asking.done()
    await agent.purge()
    assert await asking == (204, None)
    assert (await gateway.call("GET", f"/api/sessions/{session}"))[0] == 404
    assert (await gateway.call("GET", "/api/sessions"))[1]["sessions"] == []


async def test_deleting_without_an_agent_is_202(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_gateway.sessions.sessions.DELETE_WAIT_S", 0.2)
    session = await gateway.session()
    assert (await gateway.call("DELETE", f"/api/sessions/{session}"))[0] == 202
    assert (await gateway.call("DELETE", f"/api/sessions/{session}"))[0] == 202


async def test_list_is_newest_first_in_parts_and_searchable(gateway: RunningGateway, bus: Bus) -> None:
    for n in range(25):
        await FakeAgent(bus, f"s{n}").list_as(title=f"Title {n}", updated_at=1000 + n % 20, preview="Größe")
    await FakeAgent(bus, "s3").list_as(title="Title 3", updated_at=9999, preview="Größe")
    async with asyncio.timeout(20):
        while (await gateway.call("GET", "/api/sessions?limit=1"))[1]["sessions"][0]["updated_at"] != 9999:
            await asyncio.sleep(0.01)
    seen: list[str] = []
    cursor = ""
    while True:
        _, page = await gateway.call("GET", f"/api/sessions?limit=7{cursor}")
        seen += [session["id"] for session in page["sessions"]]
        if page["next"] is None:
            break
        cursor = f"&before={page['next']}"
    assert len(seen) == len(set(seen)) == 25
    assert seen[0] == "s3"
    _, found = await gateway.call("GET", "/api/sessions", params={"q": "title 2"})
    assert {session["id"] for session in found["sessions"]} == {"s2", "s20", "s21", "s22", "s23", "s24"}
    _, found = await gateway.call("GET", "/api/sessions", params={"q": "GRÖSSE"})
    assert len(found["sessions"]) == 25
    assert (await gateway.call("GET", "/api/sessions?before=nonsense"))[0] == 400


async def test_entries_forwards_and_backwards_cover_the_log(gateway: RunningGateway, bus: Bus) -> None:
    first, second = await gateway.session(id="a"), await gateway.session(id="b")
    agents = [FakeAgent(bus, first), FakeAgent(bus, second)]
    for n in range(60):
        for agent in agents if n % 3 else agents[:1]:
            message = UserMessage(content=[TextBlock(text=f"{n}")])
            await agent.append(MessageEntry(id=f"e{n}", message=message))
    whole = (await gateway.call("GET", "/api/sessions/b/entries"))[1]
    assert whole["next"] is None
    entries = whole["entries"]
    assert [entry["id"] for entry in entries] == [f"e{n}" for n in range(60) if n % 3]
    forwards, cursor = [], 0
    while cursor is not None:
        _, page = await gateway.call("GET", f"/api/sessions/b/entries?after={cursor}&limit=7")
        forwards += page["entries"]
        cursor = page["next"]
    assert forwards == entries
    backwards: list[Any] = []
    cursor = 1 << 62
    while cursor is not None:
        _, page = await gateway.call("GET", f"/api/sessions/b/entries?before={cursor}&limit=7")
        backwards = page["entries"] + backwards
        cursor = page["next"]
    assert backwards == entries
    between = f"after={entries[3]['seq']}&before={entries[9]['seq']}"
    assert (await gateway.call("GET", f"/api/sessions/b/entries?{between}"))[1]["entries"] == entries[4:9]
    assert (await gateway.call("GET", "/api/sessions/b/entries?before=0"))[1] == {"entries": [], "next": None}


async def test_an_entry_whose_object_is_lost_hides_no_other(gateway: RunningGateway, bus: Bus) -> None:
    session = await gateway.session(id="a")
    agent = FakeAgent(bus, session)
    subject = subjects.session_log(session)
    await agent.append(MessageEntry(id="e1", message=UserMessage(content=[TextBlock(text="before")])))
    lost = agent.last = await bus.publish(subject, b"", {subjects.H_OBJECT: "0" * 64})
    await agent.append(MessageEntry(id="e2", message=UserMessage(content=[TextBlock(text="after")])))
    status, page = await gateway.call("GET", "/api/sessions/a/entries")
    assert status == 200
    assert [entry.get("id") for entry in page["entries"]] == ["e1", None, "e2"]
    assert page["entries"][1] == {"seq": lost}


async def test_session_may_be_confined_more_than_its_agent_and_not_less(
    bus: Bus, nats_server: NatsServer, tmp_path: Path
) -> None:
    overrides: dict[str, object] = {"agents.main.sandbox.kind": "bubblewrap"}
    async with running_gateway(nats_server.url, tmp_path, overrides) as gateway:
        status, body = await gateway.call("POST", "/api/sessions", {"id": "weak", "sandbox": "local"})
        assert (status, body["error"]["field"]) == (403, "sandbox")
        assert "'bubblewrap'" in body["error"]["message"]
        assert await stored(bus, "weak") == []
        status, made = await gateway.call("POST", "/api/sessions", {"id": "strong", "sandbox": "docker"})
        assert (status, made["sandbox"]) == (201, "docker")
        assert (await gateway.call("PATCH", "/api/sessions/strong", {"sandbox": "local"}))[0] == 403
        assert (await gateway.call("PATCH", "/api/sessions/strong", {"sandbox": "ssh"}))[0] == 403
        assert len(await stored(bus, "strong")) == 1
        assert (await gateway.call("PATCH", "/api/sessions/strong", {"sandbox": "bubblewrap"}))[0] == 202
        assert len(await stored(bus, "strong")) == 2
        assert (await gateway.call("POST", "/api/sessions", {"id": "plain"}))[1]["sandbox"] == "bubblewrap"
