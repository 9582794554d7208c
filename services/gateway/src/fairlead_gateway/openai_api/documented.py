"""Types of what OpenAI's clients send and are answered, where the code takes any JSON and checks it itself.

Only the OpenAPI document is made from them.
"""

from typing import Annotated, Any, Final, Literal

import msgspec

from fairlead_gateway.openai_api.responses_api.objects import (
    ApprovalItem,
    FunctionCallItem,
    OwnCallItem,
    ReasoningItem,
)

SchemaObject = Annotated[dict[str, object], msgspec.Meta(description="JSON Schema")]


class FunctionDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function of the client. `parameters`: of an object."""

    name: str
    description: str | None = None
    parameters: SchemaObject | None = None
    strict: bool | None = None


class ChatTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of the client, in a chat completion."""

    type: Literal["function"]
    function: FunctionDefinition


class FunctionName(msgspec.Struct, frozen=True, kw_only=True):
    """A function by its name."""

    name: str


class ChatToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The tool that the model must call, in a chat completion."""

    type: Literal["function"]
    function: FunctionName


class TextFormat(msgspec.Struct, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """Words."""


class JsonObjectFormat(msgspec.Struct, frozen=True, kw_only=True, tag="json_object", tag_field="type"):
    """Any JSON object."""


class NamedSchema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schema and its name."""

    name: str
    schema: SchemaObject | None = None
    description: str | None = None
    strict: bool | None = None


class ChatSchemaFormat(msgspec.Struct, frozen=True, kw_only=True, tag="json_schema", tag_field="type"):
    """JSON of a schema, in a chat completion."""

    json_schema: NamedSchema


class SchemaFormat(
    msgspec.Struct, frozen=True, kw_only=True, tag="json_schema", tag_field="type", omit_defaults=True
):
    """JSON of a schema, in a response."""

    schema: SchemaObject
    name: str = "response"
    description: str | None = None
    strict: bool | None = None


class ResponseTool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool of the client, in a response."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: SchemaObject | None = None
    strict: bool | None = None


class ChosenFunction(msgspec.Struct, frozen=True, kw_only=True, tag="function", tag_field="type"):
    """The tool that the model must call, in a response."""

    name: str


class AllowedTools(msgspec.Struct, frozen=True, kw_only=True, tag="allowed_tools", tag_field="type"):
    """The tools that the model may call, in a response."""

    mode: Literal["auto", "required"]
    tools: list[ChosenFunction]


class EchoedReasoning(msgspec.Struct, frozen=True, kw_only=True):
    """How much the model was to think."""

    effort: str | None
    summary: str | None


class EchoedText(msgspec.Struct, frozen=True, kw_only=True):
    """The form that the answer was to have."""

    format: TextFormat | JsonObjectFormat | SchemaFormat


class InputTextPart(msgspec.Struct, frozen=True, kw_only=True, tag="input_text", tag_field="type"):
    """Words of a prompt."""

    text: str


class OutputTextPart(msgspec.Struct, frozen=True, kw_only=True, tag="output_text", tag_field="type"):
    """Words of an answer."""

    text: str


class InputImagePart(
    msgspec.Struct, frozen=True, kw_only=True, tag="input_image", tag_field="type", omit_defaults=True
):
    """A picture of a prompt, as a `data:` URL."""

    image_url: str | None = None
    detail: str = "auto"
    file_id: str | None = None


class InputFilePart(
    msgspec.Struct, frozen=True, kw_only=True, tag="input_file", tag_field="type", omit_defaults=True
):
    """A file of a prompt, as a `data:` URL."""

    filename: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    file_id: str | None = None


class PlainTextPart(msgspec.Struct, frozen=True, kw_only=True, tag="text", tag_field="type"):
    """Words of whoever has the role."""

    text: str


class RefusalPart(msgspec.Struct, frozen=True, kw_only=True, tag="refusal", tag_field="type"):
    """Words that refuse, in an earlier answer of another model."""

    refusal: str


class ShownMessage(
    msgspec.Struct, frozen=True, kw_only=True, tag="message", tag_field="type", omit_defaults=True
):
    """A message of a conversation: of its client, or of the agent."""

    id: str
    role: Literal["user", "assistant", "system", "developer"]
    status: str
    content: list[
        InputTextPart | OutputTextPart | PlainTextPart | InputImagePart | InputFilePart | RefusalPart
    ]
    phase: str | None = None


class StoredToolOutput(
    msgspec.Struct, frozen=True, kw_only=True, tag="function_call_output", tag_field="type"
):
    """The result of a client's tool, with which a response goes on."""

    id: str
    call_id: str
    output: str
    status: Literal["completed"]


ListedItem = ShownMessage | StoredToolOutput | ReasoningItem | OwnCallItem | FunctionCallItem | ApprovalItem

DOCUMENTED: Final[dict[tuple[str, str], Any]] = {
    ("ChatRequest", "user"): str | None,
    ("ChatRequest", "tools"): list[ChatTool] | None,
    ("ChatRequest", "tool_choice"): Literal["auto", "none", "required"] | ChatToolChoice | None,
    ("ChatRequest", "functions"): list[FunctionDefinition] | None,
    ("ChatRequest", "function_call"): Literal["auto", "none"] | FunctionName | None,
    ("ChatRequest", "response_format"): TextFormat | JsonObjectFormat | ChatSchemaFormat | None,
    ("ChatRequest", "n"): int | None,
    ("ChatRequest", "max_tokens"): int | None,
    ("ChatRequest", "max_completion_tokens"): int | None,
    ("ResponseRequest", "tools"): list[ResponseTool] | None,
    ("ResponseRequest", "tool_choice"): str | ChosenFunction | AllowedTools | None,
    ("ResponseRequest", "prompt"): None,
    ("ResponseRequest", "max_tool_calls"): None,
    ("TextOptions", "format"): TextFormat | JsonObjectFormat | SchemaFormat | None,
    ("ResponseObject", "reasoning"): EchoedReasoning,
    ("ResponseObject", "text"): EchoedText,
    ("ResponseObject", "tools"): list[ResponseTool],
    ("ResponseObject", "tool_choice"): Literal["auto", "none", "required"] | ChosenFunction,
    ("InputItemList", "data"): list[ListedItem],
}
