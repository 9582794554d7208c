"""The OpenAPI document against the gateway: generated requests find no 500 and no undocumented answer."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead_common import subjects
from fairlead_common.bus import Bus
from fairlead_common.messages import ExecutorInfo
from fairlead_common.projections import ApprovalSummary, approval_key
from fairlead_common.service import register
from tests.integration.gateway_fixture import TOKEN, RunningGateway, running_gateway
from tests.support.nats_server import NatsServer
from tests.support.scheduler_world import scheduler

EXAMPLES = "12"
SCHEDULES = "api/(cron|wake|heartbeat|hooks)"
Json = dict[str, Any]
NAMES = ("0", "00", "a", "A")  # what generators like to begin with


@pytest.fixture
async def gateway(
    bus: Bus, nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningGateway]:
    monkeypatch.setattr("fairlead_gateway.sessions.DELETE_WAIT_S", 0.05)
    async with running_gateway(nats_server.url, tmp_path) as running:
        monkeypatch.setattr(running.gateway.auth.throttle, "fail", lambda _: None)
        yield running


async def test_document_needs_credentials_and_covers_every_route(gateway: RunningGateway) -> None:
    assert (await gateway.http.get("/openapi.json", headers={"Authorization": ""})).status_code == 401
    _, document = await gateway.call("GET", "/openapi.json")
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], path
            assert {"400", "403", "421"} <= set(operation["responses"]), (method, path)
    body = document["components"]["schemas"]["Words"]
    assert body["additionalProperties"] is False
    assert body["required"] == ["text"]


def undocumented(
    schema: dict[str, Any], value: object, document: dict[str, Any], path: str = ""
) -> list[str]:
    """The fields of an answer that its schema does not have, and those that it promises and are not there."""
    if reference := schema.get("$ref"):
        schema = document["components"]["schemas"][reference.rpartition("/")[2]]
    if isinstance(value, list) and "items" in schema:
        return [each for item in value for each in undocumented(schema["items"], item, document, f"{path}[]")]
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    properties = schema["properties"]
    found = [f"{path}.{name}" for name in value.keys() - properties.keys()]
    found += [f"{path}.{name} is missing" for name in set(schema.get("required", [])) - value.keys()]
    for name in value.keys() & properties.keys():
        found += undocumented(properties[name], value[name], document, f"{path}.{name}")
    return found


async def test_live_answers_have_the_fields_of_the_document_and_no_others(
    gateway: RunningGateway, bus: Bus
) -> None:
    micro = await register(bus, "agent", {})
    await bus.publish(
        subjects.kv("executors", "h.e"), msgspec.json.encode(ExecutorInfo(executor="e", host="h"))
    )
    session = await gateway.session(deny=["bash(rm *)"], work_mode="plan")
    approval = ApprovalSummary(id="a1", session=session, shown_hash="h")
    await bus.publish(subjects.kv("sessions", approval_key("a1")), msgspec.json.encode(approval))
    async with asyncio.timeout(20):
        while not (await gateway.call("GET", "/api/approvals"))[1]["approvals"]:
            await asyncio.sleep(0.02)
    _, document = await gateway.call("GET", "/openapi.json")
    looked_at = set()
    for path, operations in document["paths"].items():
        operation = operations.get("get")
        answer = ((operation or {}).get("responses", {}).get("200") or {}).get("content", {})
        if "application/json" not in answer or "cron" in path or path.endswith(("{object}", "{model}")):
            continue
        status, body = await gateway.call("GET", path.replace("{session}", session))
        assert status in (200, 503), (path, body)
        schema = answer["application/json"]["schema"]
        assert undocumented(schema, body, document, path) == []
        looked_at.add(path)
    assert {
        "/api/sessions",
        "/api/sessions/{session}",
        "/api/approvals",
        "/api/me",
        "/api/status",
    } <= looked_at
    created = document["paths"]["/api/sessions"]["post"]["responses"]["201"]["content"]["application/json"]
    _, body = await gateway.call("POST", "/api/sessions", {})
    assert undocumented(created["schema"], body, document) == []
    assert {"deny", "work_mode"} <= body.keys()
    await micro.stop()


async def generated(url: str, folder: Path, part: str, *more: str) -> None:
    """Requests made from the document find nothing."""
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
        *("--header", f"Authorization: Bearer {TOKEN}"),
        *("--max-examples", EXAMPLES, "--request-timeout", "10", "--seed", "1", "--continue-on-failure"),
        *("--include-path-regex", part),
        # Streams do not end.
        *("--exclude-path", "/api/sessions/{session}/events", "--exclude-path", "/api/news"),
        *("--exclude-path", "/v1/chat/completions", "--exclude-path", "/api/status"),  # these take long
        *("--phases", "coverage,fuzzing", "--no-color", *more),
    ]
    done = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, cwd=folder, timeout=230, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.timeout(240)
async def test_generated_requests_are_answered_as_documented(
    gateway: RunningGateway, bus: Bus, tmp_path: Path
) -> None:
    micro = await register(bus, "agent", {})
    await bus.publish(
        subjects.kv("executors", "h.e"), msgspec.json.encode(ExecutorInfo(executor="e", host="h"))
    )
    for name in NAMES:
        await gateway.session(id=name)
        approval = ApprovalSummary(id=name, session=name, shown_hash="h")
        await bus.publish(subjects.kv("sessions", approval_key(name)), msgspec.json.encode(approval))
    await generated(gateway.url, tmp_path, f"^/(?!{SCHEDULES})")
    await micro.stop()


@pytest.mark.timeout(240)
async def test_generated_requests_about_schedules_are_answered_as_documented(
    gateway: RunningGateway, nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scheduler(nats_server, monkeypatch):
        # No schema tells which times make sense.
        checks = ("--exclude-checks", "positive_data_acceptance")
        await generated(gateway.url, tmp_path, f"^/{SCHEDULES}", *checks)
