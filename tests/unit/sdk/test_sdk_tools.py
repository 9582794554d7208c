"""Functions become tools: their type hints the schema, their errors words for the model."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from fairlead_sdk import Call, ToolError, tool
from fairlead_sdk.tools import result_of


async def silent(_: str) -> None:
    """Progress that is shown to no one."""


CALL = Call(id="c1", session="s", agent="main", tainted=False, progress=silent)


class Place(msgspec.Struct):
    """Where."""

    city: str
    country: str = "NO"


@tool(read_only=True, idempotent=True, timeout_s=5, flags=["untrusted"])
async def forecast(
    call: Call, place: Place, days: Annotated[int, Meta(ge=1, le=7, description="How many.")] = 1,
    unit: Literal["C", "F"] = "C",
) -> dict[str, object]:  # fmt: skip
    """The weather of the next days."""
    return {"city": place.city, "days": days, "unit": unit, "by": call.id}


@tool
def shout(text: str) -> str:
    """Loud words."""
    return text.upper()


def test_type_hints_are_the_schema_and_the_call_is_no_part_of_it() -> None:
    said = forecast.metadata()
    schema = msgspec.json.decode(said["fairlead.schema"])
    assert schema["properties"]["place"] == {"$ref": "#/$defs/Place"}
    assert schema["$defs"]["Place"]["required"] == ["city"]
    assert schema["properties"]["days"]["maximum"] == 7
    assert schema["properties"]["unit"]["enum"] == ["C", "F"]
    assert schema["required"] == ["place"]
    assert schema["additionalProperties"] is False
    assert "call" not in schema["properties"]
    assert said["fairlead.description"] == "The weather of the next days."
    told = {name: said.get(f"fairlead.{name}") for name in ("read_only", "idempotent", "parallel", "flags")}
    assert told == {"read_only": "true", "idempotent": "true", "parallel": None, "flags": "untrusted"}
    assert said["fairlead.timeout_s"] == "5"


async def test_arguments_are_decoded_and_the_result_is_json_or_text() -> None:
    answer = await result_of(forecast, b'{"place": {"city": "Bergen"}, "days": 2}', CALL)
    assert msgspec.json.decode(answer) == {"city": "Bergen", "days": 2, "unit": "C", "by": "c1"}
    assert await result_of(shout, b'{"text": "hi"}', CALL) == b"HI"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"place": {"city": "B"}, "days": 9}', r"<= 7 - at `\$.days`"),
        (b"{}", "missing required field `place`"),
        (b'{"place": {"city": "B"}, "odd": 1}', "unknown field `odd`"),
        (b"not json", "malformed"),
    ],
)
async def test_arguments_that_do_not_fit_are_told_to_the_model(data: bytes, problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        await result_of(forecast, data, CALL)


async def test_a_result_that_no_message_holds_is_refused() -> None:
    @tool
    def large() -> str:
        return "x" * 600_000

    with pytest.raises(ToolError, match="result: at most 524288 bytes, got 600000"):
        await result_of(large, b"", CALL)


def test_a_parameter_without_a_type_is_refused_at_once() -> None:
    def untyped(city) -> str:  # type: ignore[no-untyped-def]
        return str(city)

    def open_ended(*cities: str) -> Any:
        return cities

    for function in (untyped, open_ended):
        with pytest.raises(TypeError, match="needs a type hint"):
            tool(function)
