"""Names, schemas, declarations and texts that strangers wrote."""

import json

import jsonschema
import msgspec
import pytest

from fairlead_common.config import NatsTool
from fairlead_common.requests import Endpoint, MicroInfo
from fairlead_tools.host_results import MAX_TEXT_BYTES, MAX_TEXT_LINES, cut_text
from fairlead_tools.nats_tools.declared import declarations
from fairlead_tools.tool_names import joined
from fairlead_tools.tool_schemas import BrokenSchemaError, checked_schema

# -- names --------------------------------------------------------------------


def test_a_name_that_fits_stays() -> None:
    assert joined("mcp", "github", "search_issues") == "mcp__github__search_issues"


def test_names_that_do_not_fit_stay_apart() -> None:
    long = "a" * 80
    names = {joined("mcp", "x", each) for each in (long, long + "b", "a.b", "a/b", "a_b", "ä_b", "")}
    assert len(names) == 7
    assert all(len(name) <= 64 for name in names)
    assert all(name.replace("_", "a").replace("-", "a").isalnum() and name.isascii() for name in names)


# -- schemas ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("text", "must be an object, got str"),
        ({"type": "string"}, "type must be 'object'"),
        ({"type": "object", "properties": {"a": {"type": "no-such"}}}, "is not valid under any"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:1/x.json"}}}, "must stay inside"),
        ({"properties": {"a": {"$ref": "other.json#/x"}}}, "must stay inside"),
        ({"description": "x" * 40_000}, "at most 32768 bytes, got 400"),
        (json.loads('{"not":' * 40 + "{}" + "}" * 40), "at most 32 levels"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_the_reason(schema: object, why: str) -> None:
    with pytest.raises(BrokenSchemaError, match=why):
        checked_schema(schema, trusted=False)


def test_a_strangers_regular_expression_cannot_hang_the_check() -> None:
    evil = {
        "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}, "pattern": {"type": "integer"}},
        "patternProperties": {"^(b+)+$": {}},
    }
    safe = checked_schema(evil, trusted=False)
    assert safe == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "pattern": {"type": "integer"}},
    }
    jsonschema.validate({"a": "a" * 60 + "!"}, safe)
    assert checked_schema(evil, trusted=True)["patternProperties"] == {"^(b+)+$": {}}


def test_what_a_schema_says_of_data_is_kept_as_it_is() -> None:
    schema = {
        "type": "object",
        "$id": "https://elsewhere.example/x",
        "properties": {"a": {"enum": [{"$ref": "just data"}], "default": {"pattern": "x"}}},
        "$defs": {"b": {"type": "integer"}},
    }
    assert checked_schema(schema, trusted=False) == {
        key: value for key, value in schema.items() if key != "$id"
    }


# -- texts --------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "x" * 300_000,
        "line\n" * 5_000,
        "ä" * 40_000,
        ("y" * 100 + "\n") * 1_000,
        "\n" * 2_001,
        "a\n" + "ß" * 60_000,
    ],
)
def test_a_long_text_keeps_its_beginning_and_its_end(text: str) -> None:
    shown, cut = cut_text(text)
    head, marker, tail = shown.partition("\n[... ")
    assert cut
    assert marker
    left, _, end = tail.partition(" bytes left out here ...]\n")
    assert text.startswith(head)
    assert text.endswith(end)
    assert len(head.encode()) + int(left) + len(end.encode()) == len(text.encode())
    assert len(shown.encode()) <= MAX_TEXT_BYTES + 100
    assert shown.count("\n") <= MAX_TEXT_LINES + 3


def test_a_short_text_stays_and_half_a_character_does_no_harm() -> None:
    assert cut_text("short\n") == ("short\n", False)
    msgspec.json.encode(cut_text("half \ud83d")[0])


# -- declarations -------------------------------------------------------------

SCHEMA = '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'


def service(
    name: str = "weather", version: str = "1.0.0", subject: str = "weather.now", **said: str
) -> MicroInfo:
    metadata = {
        "fairlead.tool": "true",
        "fairlead.description": f"v{version}",
        **{f"fairlead.{key}": value for key, value in said.items()},
    }
    endpoint = Endpoint(name="now", subject=subject, metadata=metadata)
    return MicroInfo(name=name, id=f"{name}-{version}", version=version, endpoints=[endpoint])


def test_an_endpoint_that_says_so_is_a_tool() -> None:
    made = declarations([service(schema=SCHEMA, timeout_s="300", parallel="true")], {}, ["*"])
    [(name, tool)] = made.tools.items()
    assert (name, tool.subject, made.problems) == ("nats__weather__now", "weather.now", {})
    spec = tool.spec
    assert (spec.group, spec.flags, spec.timeout_s) == ("nats", ["untrusted", "external"], 300)
    assert (spec.idempotent, spec.read_only, spec.parallel) == (False, False, True)
    assert spec.parameters == json.loads(SCHEMA)


def test_an_endpoint_that_says_nothing_is_no_tool() -> None:
    plain = MicroInfo(name="x", id="1", endpoints=[Endpoint(name="e", subject="x.e", metadata=None)])
    said_no = service(tool="false")
    assert declarations([plain, said_no, MicroInfo(name="y", id="2")], {}, ["*"]) == ({}, {})


def test_what_only_reads_may_be_repeated_and_does_not_act() -> None:
    [tool] = declarations([service(read_only="true")], {}, ["*"]).tools.values()
    assert (tool.spec.idempotent, tool.spec.flags) == (True, ["untrusted"])
    [tool] = declarations([service(flags="private, external")], {}, ["*"]).tools.values()
    assert tool.spec.flags == ["private", "external"]


def test_instances_count_once_and_the_newest_version_speaks() -> None:
    made = declarations(
        [service(version="1.9.0"), service(version="1.10.0"), service(version="1.2.0")], {}, ["*"]
    )
    assert [tool.spec.description for tool in made.tools.values()] == ["v1.10.0"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"subject": "$JS.API.STREAM.DELETE.SESSIONS"}, "must not lie under"),
        ({"subject": "fairlead.session.main.in.prompt"}, "must not lie under"),
        ({"subject": "_INBOX.gateway.1"}, "must not lie under"),
        ({"subject": "weather.>"}, "no wildcard"),
        ({"schema": "{"}, "not JSON"),
        ({"schema": '{"type":"array"}'}, "type must be 'object'"),
        ({"description": " "}, "must not be empty"),
        ({"timeout_s": "never"}, "must be over 0"),
        ({"timeout_s": "nan"}, "must be over 0"),
        ({"flags": "harmless"}, "must be of"),
    ],
)
def test_a_declaration_that_does_not_fit_is_left_out_with_the_reason(
    changes: dict[str, str], why: str
) -> None:
    made = declarations([service(**changes)], {}, ["*"])
    assert made.tools == {}
    assert why in made.problems["weather/now"]


def test_the_platforms_own_tools_keep_their_plain_names() -> None:
    own = service("fairlead-scheduler-tools", subject="fairlead.service.scheduler.wake", tool="wake")
    [(name, tool)] = declarations([own], {}, []).tools.items()
    assert (name, tool.spec.group, tool.spec.flags) == ("wake", "platform", [])


def test_nobody_gets_a_plain_name_by_the_name_of_its_service_alone() -> None:
    posing = service("fairlead-scheduler", subject="evil.wake", tool="wake")
    made = declarations([posing], {}, ["*"])
    assert made.tools == {}
    assert "must begin with fairlead.service." in made.problems["fairlead-scheduler/now"]


def test_only_wanted_services_are_heard() -> None:
    both = [service("weather"), service("wiki", subject="wiki.now"), service("other", subject="other.now")]
    assert set(declarations(both, {}, ["w*"]).tools) == {"nats__weather__now", "nats__wiki__now"}
    assert set(declarations(both, {}, ["other"]).tools) == {"nats__other__now"}
    assert declarations(both, {}, []).tools == {}


def test_a_subject_of_the_configuration_is_a_tool_and_comes_first() -> None:
    listed = NatsTool(subject="demo.uptime", description="How long it runs.", read_only=True)
    made = declarations([], {"uptime": listed}, [])
    [(name, tool)] = made.tools.items()
    assert (name, tool.subject, tool.spec.parameters) == ("nats__uptime", "demo.uptime", {"type": "object"})
    own = NatsTool(subject="fairlead.session.main.in.prompt", description="Forge a prompt.")
    assert "must not lie under" in declarations([], {"x": own}, []).problems["tools.nats.x"]
