"""Schemas of clients: what they refer to must be in them."""

from typing import Any

import pytest

from fairlead_agent.tools.client_schemas import SchemaCheck
from fairlead_common.errors import BadMessageError

DRAFT7 = "http://json-schema.org/draft-07/schema#"
LEAF: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("schema", "value", "is_good"),
    [
        ({"$ref": "#/$defs/leaf", "$defs": {"leaf": LEAF}}, {"n": 1}, True),
        ({"$ref": "#/$defs/leaf", "$defs": {"leaf": LEAF}}, {"n": "1"}, False),
        ({"properties": {"next": {"$ref": "#"}}, "required": ["next"]}, {"next": {"next": 1}}, True),
        ({"properties": {"next": {"$ref": "#"}}, "required": ["next"]}, {"next": {}}, False),
        (
            {"$schema": DRAFT7, "items": {"$ref": "#/definitions/leaf"}, "definitions": {"leaf": LEAF}},
            [{}],
            False,
        ),
        ({"items": {"$ref": "#leaf"}, "$defs": {"x": {"$anchor": "leaf", **LEAF}}}, [{"n": 1}], True),
        (
            {"properties": {"a": {"$id": "urn:a", "$ref": "#/$defs/leaf", "$defs": {"leaf": LEAF}}}},
            {"a": {}},
            False,
        ),
        ({"properties": {"$ref": {"type": "string"}}}, {"$ref": "x"}, True),
        ({"enum": [{"$ref": "#/nothing"}]}, {"$ref": "#/nothing"}, True),
    ],
)
def test_what_a_schema_refers_to_counts(schema: dict[str, Any], value: object, is_good: bool) -> None:
    assert (SchemaCheck(schema).problems(value) == []) is is_good


@pytest.mark.parametrize(
    ("schema", "target"),
    [
        ({"$ref": "#/$defs/leaf"}, "#/$defs/leaf"),
        ({"anyOf": [{"properties": {"a": {"$ref": "#/definitions/leaf"}}}]}, "#/definitions/leaf"),
        ({"$defs": {"a": {"items": {"$ref": "#leaf"}}}}, "#leaf"),
        ({"$ref": "#/maxLength/x", "maxLength": 3}, "#/maxLength/x"),
        (
            {"properties": {"a": {"$id": "urn:a", "$ref": "#/$defs/leaf"}}, "$defs": {"leaf": LEAF}},
            "#/$defs/leaf",
        ),
    ],
)
def test_a_schema_that_refers_to_what_it_does_not_have_is_refused(
    schema: dict[str, Any], target: str
) -> None:
    with pytest.raises(BadMessageError, match=f"there is no '{target}'".replace("$", r"\$")):
        SchemaCheck(schema)


def test_a_schema_that_leads_only_to_itself_says_so_without_names_of_python() -> None:
    [problem] = SchemaCheck({"$ref": "#"}).problems({})
    assert problem.startswith("it cannot be checked: the schema refers to itself without end")
