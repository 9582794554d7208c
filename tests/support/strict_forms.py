"""What vendors refuse of the choice of tools and of the form of a reply, in their own words."""

import json
from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def chat_problems(body: Json) -> Iterable[str]:
    """In OpenAI's chat completions."""
    names = {tool["function"]["name"] for tool in body.get("tools", ())}
    choice = body.get("tool_choice")
    if choice is not None and not names:
        yield "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."
    elif isinstance(choice, dict):
        if set(choice) != {"type", "function"} or choice["function"].get("name") not in names:
            yield f"Invalid value for 'tool_choice': tool not found in 'tools': {choice}"
    elif choice not in (None, "auto", "none", "required"):
        yield f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'."
    yield from _openai_form(body.get("response_format"), "json_schema", json.dumps(body["messages"]))
    for tool in body.get("tools", ()):
        function = tool["function"]
        if function.get("strict"):
            where = f"function '{function['name']}'"
            yield from _openness(function["parameters"], f"Invalid schema for {where}", every_property=True)


def responses_problems(body: Json) -> Iterable[str]:
    """In OpenAI's Responses API."""
    names = {tool.get("name") for tool in body.get("tools", ())}
    choice = body.get("tool_choice")
    if choice is not None and not names:
        yield "Tool choice must be 'auto' or 'none' when no tools are specified."
    elif isinstance(choice, dict):
        if set(choice) != {"type", "name"} or choice["name"] not in names:
            yield f"Tool choice '{choice}' not found in 'tools' parameter."
    elif choice not in (None, "auto", "none", "required"):
        yield f"Invalid value: '{choice}'."
    form = (body.get("text") or {}).get("format")
    if form is not None and form["type"] == "json_schema":
        nested = {name: value for name, value in form.items() if name != "type"}
        form = {"type": "json_schema", "json_schema": nested}
    yield from _openai_form(form, "json_schema", json.dumps(body["input"]))


def claude_problems(body: Json) -> Iterable[str]:
    """In Anthropic's Messages API."""
    names = {tool["name"] for tool in body.get("tools", ())}
    choice = body.get("tool_choice")
    if choice is not None:
        kind = choice.get("type")
        if not names:
            yield "tool_choice: may only be specified while providing tools"
        if kind not in ("auto", "any", "none", "tool"):
            yield f"tool_choice: Input tag '{kind}' does not match any of the expected tags"
        if kind == "tool" and choice.get("name") not in names:
            yield f"tool_choice: Tool '{choice.get('name')}' not found in provided tools"
        if kind in ("any", "tool") and body.get("thinking", {}).get("type") in ("enabled", "adaptive"):
            yield "Thinking may not be enabled when tool_choice forces tool use."
    config = body.get("output_config", {})
    for name in set(config) - {"effort", "format"}:
        yield f"output_config.{name}: Extra inputs are not permitted"
    if (form := config.get("format")) is not None:
        if form.get("type") != "json_schema" or set(form) != {"type", "schema"}:
            yield f"output_config.format: Input should be a json_schema, got {form}"
        else:
            yield from _openness(form["schema"], "output_config.format.schema", every_property=False)


def _openai_form(form: Json | None, inner: str, words: str) -> Iterable[str]:
    if form is None:
        return
    if form["type"] == "json_object":
        if "json" not in words.lower():
            yield "'messages' must contain the word 'json' in some form, to use 'response_format'."
        return
    if form["type"] != "json_schema" or set(form) != {"type", inner}:
        yield f"Invalid value: {form}. Supported values are: 'json_object' and 'json_schema'."
        return
    named = form[inner]
    for name in set(named) - {"name", "schema", "strict", "description"}:
        yield f"Unknown parameter: 'response_format.json_schema.{name}'."
    if not named.get("name"):
        yield "Missing required parameter: 'response_format.json_schema.name'."
    if named.get("strict"):
        name = named["name"]
        yield from _openness(
            named["schema"], f"Invalid schema for response_format '{name}'", every_property=True
        )


def _openness(schema: Any, where: str, *, every_property: bool) -> Iterable[str]:
    """Objects that a strict schema leaves open."""
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object":
        if schema.get("additionalProperties") is not False:
            yield f"{where}: 'additionalProperties' is required to be supplied and to be false."
        elif every_property and set(schema.get("properties", ())) - set(schema.get("required", ())):
            yield f"{where}: 'required' is required to include every key in properties."
    for value in schema.values():
        for child in value.values() if isinstance(value, dict) and "type" not in value else [value]:
            yield from _openness(child, where, every_property=every_property)
