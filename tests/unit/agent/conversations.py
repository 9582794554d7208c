"""Conversations of every kind that a model is shown, for tests of what its provider is sent."""

from dataclasses import dataclass, field
from typing import Final

from fairlead_common.errors import NotFoundError
from fairlead_common.protocol.content import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolOutcome,
    ToolResultMessage,
    ToolStatus,
    UserMessage,
    text_outcome,
)
from fairlead_common.protocol.messages import ToolSpec
from fairlead_common.session_log.conversation import Item, LeftOut

OPENAI: Final = "openai/gpt-5"
CLAUDE: Final = "litellm/anthropic/claude-opus-4-6"

TOOLS: Final = [
    ToolSpec(
        name="read",
        description='Read a file: "quoted", ünïcode.',
        parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        read_only=True,
    ),
    ToolSpec(
        name="api__pets__list",
        description="List pets.",
        parameters={"type": "object", "x-fairlead-api": {"method": "GET", "path": "/pets"}},
    ),
]


@dataclass(frozen=True)
class Conversation:
    """What a session's log has, and with what the model is asked.

    Fields:
        requests: the number of messages that each request in turn is made of.
        asks_again: whether the last request repeats that of an empty reply.
    """

    messages: list[Message]
    requests: list[int]
    model: str = OPENAI
    images: bool = True
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    asks_again: bool = False
    system: str = "You are main.\n\nBe brief."
    tools: list[ToolSpec] = field(default_factory=lambda: TOOLS)
    thinking: str = "off"
    temperature: float | None = None
    max_output_tokens: int | None = None

    def items(self, count: int) -> list[Item]:
        return [Item(f"e{number}", each) for number, each in enumerate(self.messages[:count])]


async def fetch(name: str) -> bytes:
    """Of the object store."""
    if name == "gone":
        raise NotFoundError("object gone does not exist")
    return name.encode() * 3


def said(*blocks: TextBlock | ImageBlock | str) -> UserMessage:
    return UserMessage(
        content=[TextBlock(text=each) if isinstance(each, str) else each for each in blocks], seqs=[1]
    )


def replied(
    *blocks: TextBlock | ThinkingBlock | ToolCallBlock | str, model: str = OPENAI
) -> AssistantMessage:
    content = [TextBlock(text=each) if isinstance(each, str) else each for each in blocks]
    return AssistantMessage(content=content, model=model)


def call(
    number: int, name: str = "read", provider_id: str | None = None, **arguments: object
) -> ToolCallBlock:
    return ToolCallBlock(
        call_id=f"m_{number}", name=name, arguments=arguments, provider_id=provider_id, host="host1"
    )


def result(
    number: int, text: str, status: ToolStatus = "ok", provider_id: str | None = None
) -> ToolResultMessage:
    return ToolResultMessage(
        call_id=f"m_{number}",
        name="read",
        provider_id=provider_id,
        outcome=text_outcome(status, text, is_error=status != "ok"),
    )


def seen(number: int, *blocks: TextBlock | ImageBlock) -> ToolResultMessage:
    outcome = ToolOutcome(status="ok", content=list(blocks))
    return ToolResultMessage(call_id=f"m_{number}", name="read", outcome=outcome)


HERE: Final = ImageBlock(object="here", media_type="image/png", name="cat.png")
THERE: Final = ImageBlock(object="there", media_type="image/jpeg")
GONE: Final = ImageBlock(object="gone", media_type="image/png", name="lost.png")
SIGNED: Final = ThinkingBlock(text="hm", signature="S1")
HIDDEN: Final = ThinkingBlock(text="", redacted="R2")
UNSIGNED: Final = ThinkingBlock(text="just a thought")

PARALLEL: Final[list[Message]] = [
    said("look at both"),
    replied(
        SIGNED,
        HIDDEN,
        UNSIGNED,
        "I look.",
        call(0, provider_id="toolu_1", path="a"),
        call(1, path="b"),
        model=CLAUDE,
    ),
    result(0, "first", provider_id="toolu_1"),
    result(1, "second"),
    replied("both seen", model=CLAUDE),
    said("thanks"),
]
PICTURES: Final[list[Message]] = [
    said("what is this", HERE, GONE),
    replied(call(0, path="a.png"), call(1, path="b.png")),
    seen(0, TextBlock(text="a.png, 3 bytes"), THERE),
    seen(1, HERE, TextBlock(text="and words")),
    replied("two pictures"),
    said("and?"),
]

CONVERSATIONS: Final = {
    "text": Conversation(
        [
            said("hi"),
            replied('ho "quoted"\n\tünï \U0001f600'),
            said("two", "blocks"),
            replied("a", "b"),
            said(""),
        ],
        [1, 3, 5],
        temperature=0.5,
        max_output_tokens=100,
    ),
    "no_tools": Conversation([said("hi")], [1], tools=[], thinking="low"),
    "tool_call": Conversation(
        [
            said("read it"),
            replied("ok", call(0, provider_id="call_7", path="a", n=[1, {"x": None}])),
            result(0, "text of a", provider_id="call_7"),
            replied("done"),
            said("more"),
        ],
        [1, 3, 5],
    ),
    "parallel_calls_of_claude": Conversation(PARALLEL, [1, 4, 6], model=CLAUDE, thinking="low"),
    "parallel_calls_for_another_family": Conversation(PARALLEL, [6]),
    "images": Conversation(PICTURES, [1, 4, 6]),
    "images_at_the_end_of_a_turn": Conversation([*PICTURES[:4], said("stop", HERE)], [4, 5]),
    "images_for_a_model_without": Conversation(PICTURES, [1, 4, 6], images=False),
    "tool_errors": Conversation(
        [
            said("try"),
            replied(*(call(number, path="x") for number in range(7))),
            result(0, "no such file", "error"),
            result(1, "stopped", "cancelled"),
            result(2, "too slow", "timed_out"),
            result(3, "steered", "skipped"),
            result(4, "Denied: rule.", "denied"),
            result(5, "nobody knows", "unknown"),
            ToolResultMessage(call_id="m_6", name="read", outcome=ToolOutcome(status="unknown", content=[])),
        ],
        [1, 9],
    ),
    "calls_without_sense": Conversation(
        [
            said("try"),
            replied(
                ToolCallBlock(
                    call_id="m_0", name="functions.read file", raw_arguments='{"path": ' + "x" * 5000
                ),
                ToolCallBlock(call_id="m_1", name="", raw_arguments=""),
                ToolCallBlock(call_id="m_2", name="n" * 90, arguments={}),
            ),
            result(0, "no such tool", "error"),
            result(1, "no such tool", "error"),
            result(2, "no such tool", "error"),
        ],
        [5],
    ),
    "steering": Conversation(
        [
            said("go"),
            replied("I go", call(0, path="a"), call(1, path="b")),
            result(0, "a"),
            result(1, "skipped for new input", "skipped"),
            said("[system] event", "rather this", "and that"),
            replied("I see"),
            said("follow-up"),
        ],
        [1, 5, 7],
    ),
    "cut_replies": Conversation(
        [
            said("go"),
            AssistantMessage(content=[], model=OPENAI, stop_reason="aborted"),
            said("again"),
            AssistantMessage(content=[UNSIGNED], model=OPENAI, stop_reason="aborted"),
            said("again"),
            AssistantMessage(content=[TextBlock(text="half a")], model=OPENAI, stop_reason="aborted"),
            said("go on"),
        ],
        [1, 3, 5, 7],
    ),
    "asked_again": Conversation(
        [said("go"), AssistantMessage(content=[UNSIGNED], model=OPENAI)], [2], asks_again=True
    ),
    "left_out": Conversation(
        PICTURES, [6], left_out={"e0": "images", "e2": "all", "e3": "images", "e5": "all"}
    ),
}
