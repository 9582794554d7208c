"""Vercel's AI SDK."""

from tests.clients.stack import Stack


def test_text_objects_and_streams_with_tools(stack: Stack) -> None:
    found = stack.run_javascript("ai_sdk.mjs")
    assert (found["text"], found["steps"], found["stream"]) == ("It is warm.", 2, "It is warm.")
    assert found["object"] == {"name": "Bonn", "degrees": 21}
    assert found["cities"] == ["Bonn", "Bonn"]
    assert found["tokens"] > 0
