"""The SDK's structs are true to the contract, and so are the errors that it raises."""

from typing import Any

import msgspec
import pytest

from fairlead_common.protocol.schemas import schemas_of
from fairlead_gateway.http.problems import Problem
from fairlead_gateway.openapi_document import openapi_document
from fairlead_sdk import errors, models

CONTRACT: dict[str, Any] = openapi_document()["components"]["schemas"]
OWN: dict[str, Any] = schemas_of(models.CHECKED, [])[1]


def shape(schema: dict[str, Any]) -> Any:
    """What of a schema a decoder cares about. An object of any content stands for one that is described."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return ("struct", name) if name in OWN else "object"
    if "anyOf" in schema:
        return frozenset(map(str, (shape(each) for each in schema["anyOf"])))
    if "enum" in schema:
        return "string"
    if schema.get("type") == "array":
        return ("array", shape(schema.get("items", {})))
    return schema.get("type")


@pytest.mark.parametrize("struct", models.CHECKED, ids=lambda struct: str(struct.__name__))
def test_every_field_is_in_the_contract_with_its_type(struct: type[msgspec.Struct]) -> None:
    component = CONTRACT[struct.__name__]
    own = OWN[struct.__name__]
    for name, schema in own["properties"].items():
        assert name in component["properties"], name
        assert shape(schema) == shape(component["properties"][name]), name
    assert set(own.get("required", [])) <= set(component["required"])


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidInputError),
        (401, errors.UnauthorizedError),
        (403, errors.ForbiddenError),
        (404, errors.NotFoundError),
        (409, errors.ConflictError),
        (503, errors.UnavailableError),
        (507, errors.ApiError),
    ],
)
def test_refusals_are_exceptions_with_field_limit_and_value(status: int, kind: type) -> None:
    answer = Problem(status, "title: too long", field="title", limit=500, value="501 characters")
    error = errors.error_of(status, bytes(answer.response("/api/sessions").body))
    assert type(error) is kind
    assert (error.status, error.field, error.limit, error.value) == (status, "title", 500, "501 characters")
    assert str(error) == "title: too long"


def test_an_answer_of_a_proxy_is_an_error_too() -> None:
    error = errors.error_of(502, b"<html>Bad Gateway")
    assert isinstance(error, errors.UnavailableError)
    assert "Bad Gateway" in str(error)
