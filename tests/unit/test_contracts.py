"""The generated contracts are up to date, complete, and true to the code that builds subjects."""

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec
import pytest

from fairlead_common.protocol import content, entries, events, messages, projections, subjects
from fairlead_gateway.openapi_document import openapi_document
from scripts.contracts.asyncapi import asyncapi_document
from scripts.contracts.channels import CHANNELS
from scripts.contracts.files import ROOT, contracts
from scripts.contracts.typescript import typescript


@pytest.mark.parametrize("path", sorted(contracts()))
def test_generated_files_are_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text("utf-8") == contracts()[path], (
        f"{path} is out of date: run `make contracts`"
    )


def references(document: Any) -> Iterator[str]:
    if isinstance(document, dict):
        if isinstance(document.get("$ref"), str):
            yield document["$ref"]
        for value in document.values():
            yield from references(value)
    elif isinstance(document, list):
        for value in document:
            yield from references(value)


@pytest.mark.parametrize("document", [openapi_document(), asyncapi_document()], ids=["openapi", "asyncapi"])
def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    found = set(references(document))
    assert found
    for reference in found:
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            assert step in place, reference
            place = place[step]


def test_every_answer_of_a_route_has_a_schema() -> None:
    for path, operations in openapi_document()["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                where = f"{method} {path} {status}"
                if status == "204":
                    assert "content" not in answer, where
                    continue
                ((kind, content),) = answer["content"].items()
                schema = content["x-event-data"] if kind == "text/event-stream" else content["schema"]
                is_text = kind == "text/plain" or schema.get("format") == "binary"
                assert schema.keys() & {"$ref", "anyOf"} or is_text, where


def test_parameters_of_channels_are_declared_and_operations_name_their_messages() -> None:
    document = asyncapi_document()
    addresses = [channel["address"] for channel in document["channels"].values()]
    assert len(addresses) == len(set(addresses))
    for name, channel in document["channels"].items():
        assert set(re.findall(r"{(\w+)}", channel["address"])) == set(channel.get("parameters", {})), name
    operated = {
        operation["channel"]["$ref"].rpartition("/")[2] for operation in document["operations"].values()
    }
    assert operated == document["channels"].keys()


# Filters over several subjects and names in buckets; no message is published on them.
NOT_PUBLISHED = {
    "snapshot",  # derived, and of one version
    "runs_of",
    "agent_reply",  # a prefix: within an account it is an inbox of the agent
    *("session_all", "session_mail", "budget", "live", "tool_requests", "tools_consumer"),
    *("workspaces_gone", "workspace_gone", "kv_stream", "kv"),
}
CONSTANTS = (
    *("WAKE", "CRON_CHANGED", "AGENT_CONFIGURATION", "AGENT_OVERRIDES", "AGENT_MODELS"),
    "AGENT_KNOWN_MODELS",
    *("AGENT_CREDENTIALS", "CREDENTIALS_CHANGED"),
    *("MODEL_ASK", "MODEL_CANCEL", "WEBUI_FILE"),
)


def test_every_subject_that_the_code_builds_is_a_channel() -> None:
    addresses = {channel.address for channel in CHANNELS}
    shapes = {re.sub(r"{\w+}", "*", address) for address in addresses}
    missing = []
    for name, build in inspect.getmembers(subjects, inspect.isfunction):
        if build.__module__ != subjects.__name__ or name.startswith(("parse_", "_")) or name in NOT_PUBLISHED:
            continue
        arguments = [0 if part.annotation is int else "X" for part in parameters(build)]
        if name == "mail":
            kinds = sorted(subjects.MAIL_KINDS - {"notice"})  # notices have names of their own
            built = [subjects.mail("X", kind, "X") for kind in kinds]
        elif name == "api":
            continue  # one channel for each method, see below
        else:
            built = [build(*arguments)]
        missing += [each for each in built if re.sub(r"\b(X|0)\b", "*", each) not in shapes]
    for name in CONSTANTS:
        missing += [] if getattr(subjects, name) in shapes else [name]
    assert missing == []


def parameters(build: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(build).parameters.values())


def test_every_method_of_the_scheduler_is_a_channel() -> None:
    source = (ROOT / "services/scheduler/src/fairlead_scheduler/api.py").read_text()
    methods = set(re.findall(r'Method\("([a-z.]+)"', source))
    assert len(methods) > 10
    assert {subjects.api(method) for method in methods} <= {channel.address for channel in CHANNELS}


@pytest.mark.parametrize("module", [messages, content, entries, events, projections])
def test_every_struct_on_the_wire_is_in_a_contract(module: ModuleType) -> None:
    described = (
        openapi_document()["components"]["schemas"].keys() | asyncapi_document()["components"]["schemas"]
    )
    structs = {
        name
        for name, kind in inspect.getmembers(module, inspect.isclass)
        if issubclass(kind, msgspec.Struct)
        and kind.__module__ == module.__name__
        and not name.startswith("_")
    }
    # Bases, what stands for a later version, and a mail that is told by its subject.
    structs -= {"EntryBase", "EventBase", "LaterEntry", "Notice"}
    assert structs - described == set()


def test_types_for_typescript() -> None:
    schemas: dict[str, Any] = {
        "B": {
            "description": "A thing.",
            "type": "object",
            "properties": {
                "kind": {"enum": ["b"]},
                "many": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "odd-name": {"$ref": "#/components/schemas/A"},
                "open": {"type": "object", "additionalProperties": {"type": "integer"}},
                "any": {"description": "any JSON"},
            },
            "required": ["kind"],
        },
        "A": {"allOf": [{"$ref": "#/components/schemas/B"}, {"type": "object", "properties": {}}]},
    }
    assert typescript(schemas) == (
        "export type A = B & Record<string, never>;\n\n"
        "/** A thing. */\n"
        "export interface B {\n"
        '  kind: "b";\n'
        "  many?: (string | null)[];\n"
        '  "odd-name"?: A;\n'
        "  open?: Record<string, number>;\n"
        "  any?: unknown;\n"
        "}\n"
    )
