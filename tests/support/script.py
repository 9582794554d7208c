"""What the scripted model says: a function of the conversation it is given, and of nothing else.

A user text steers it by words that may stand anywhere in it:

    op=P17 steps=3              three turns of one tool call each (ops P17.S1 ... P17.S3), then `done P17`
           calls=2              two calls in each of these turns (ops P17.S1.1, P17.S1.2, ...)
           sleep=0.2            what the command template is given as its duration
           run="echo hi"        this command instead of the template
           tool=read path=a.txt another tool; its one argument
           tool=x args={"a":1}  ... or all its arguments, as JSON without blanks
    answer="all is well"        the final text, as it stands
    say 200 tokens              the final text has 200 words of one token each
    rate=100                    words per second; as fast as possible without it
    stall=2.5                   seconds before the first byte of each answer
    fail=429x2                  status 429 for the first two requests of this text (also 500, 503, ...)
    overflow=1                  the first request is too long for the context window
    cut=1                       the first answer breaks off in mid-stream
    length=1                    the final text ends at the output limit
    malformed=1                 the first turn asks for a tool with arguments that are no JSON
    summary="what was done"     what is written when this is to be summarised; of several the last one
    summarising=2.5             seconds before the first byte of that
    id=B4, steer=ST4            only names the text, so that the log shows who saw it

The plan of the newest text with `op` or `say` counts (of all texts, when several were said in a row).
How far it is shows in the conversation: the number of assistant messages with tool calls since then.
"""

import json
import re
from typing import Any, NamedTuple

DEFAULT_COMMAND = "python3 -IS ledger.py {op} {sleep}"
WORD = "word "

_PAIR = re.compile(r'\b([a-z_]+)=(?:"([^"]*)"|(\S+))')
_SAY = re.compile(r"\bsay (\d+) tokens?\b")
_NAME = re.compile(r"\b(?:op|id|steer)=([\w.-]+)")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")

Message = dict[str, Any]


class Call(NamedTuple):
    """One tool call as the model writes it."""

    id: str
    name: str
    arguments: str


class Plan(NamedTuple):
    """All that one text asks for."""

    name: str
    turns: list[list[Call]]
    words: int | None
    rate: float
    stall_s: float
    trouble: dict[str, int]  # `429`, `500`, `overflow`, `cut`: how many times
    answer: str = ""
    finish: str = "stop"  # of the final text


class Move(NamedTuple):
    """The next thing to say: calls, or text."""

    plan: Plan
    turn: int
    calls: list[Call]
    text: str


NOTHING = Plan("", [], None, 0.0, 0.0, {})

# How a conversation begins that is given to a model to be summarised.
_TO_SUMMARISE = "<conversation>"


def names(text: str) -> list[str]:
    """The ids that a text carries, in order."""
    return _NAME.findall(text)


def text_of(message: Message) -> str:
    """The words of a message, whether its content is text or parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""


def parse(text: str, command: str = DEFAULT_COMMAND) -> Plan:
    """The plan that a text asks for; `NOTHING` if it has no `op` and no `say`."""
    pairs = {key: quoted or plain for key, quoted, plain in _PAIR.findall(text)}
    say = _SAY.search(text)
    if "op" not in pairs and say is None and "answer" not in pairs:
        return NOTHING
    name = pairs.get("op") or pairs.get("id") or "said"
    trouble = {word: int(pairs[word]) for word in ("overflow", "cut") if word in pairs}
    if "fail" in pairs:
        status, _, times = pairs["fail"].partition("x")
        trouble[status] = int(times or 1)
    broken = [
        [Call(f"call_{name}_m{number}", "bash", '{"command": "echo never')]
        for number in range(int(pairs.get("malformed", 0)))
    ]
    turns = [_step(name, step, pairs, command) for step in range(1, int(pairs.get("steps", 0)) + 1)]
    return Plan(
        name=name,
        turns=broken + turns,
        words=int(say.group(1)) if say else None,
        rate=float(pairs.get("rate", 0)),
        stall_s=float(pairs.get("stall", 0)),
        trouble=trouble,
        answer=pairs.get("answer", ""),
        finish="length" if "length" in pairs else "stop",
    )


def _step(name: str, step: int, pairs: dict[str, str], command: str) -> list[Call]:
    count = int(pairs.get("calls", 1))
    calls = []
    for number in range(1, count + 1):
        op = f"{name}.S{step}" if count == 1 else f"{name}.S{step}.{number}"
        tool = pairs.get("tool", "bash")
        if "args" in pairs:
            arguments = json.loads(pairs["args"])
        elif tool == "bash":
            arguments = {"command": pairs.get("run") or command.format(op=op, sleep=pairs.get("sleep", "0"))}
        else:
            arguments = {"path": pairs.get("path", ".")}
        calls.append(Call(f"call_{op.replace('.', '_')}", tool, json.dumps(arguments)))
    return calls


def _joined(plans: list[Plan]) -> Plan:
    first = plans[0]
    return first._replace(
        name=" ".join(dict.fromkeys(plan.name for plan in plans)),
        turns=[turn for plan in plans for turn in plan.turns],
        words=next((plan.words for plan in plans if plan.words is not None), None),
        rate=max(plan.rate for plan in plans),
        stall_s=max(plan.stall_s for plan in plans),
        trouble={word: count for plan in plans for word, count in plan.trouble.items()},
        answer=next((plan.answer for plan in plans if plan.answer), ""),
        finish=next((plan.finish for plan in plans if plan.finish != "stop"), "stop"),
    )


def _summary_of(text: str) -> Move | None:
    """What is written of a conversation that is to be summarised; None: its texts do not say."""
    pairs = {key: quoted or plain for key, quoted, plain in _PAIR.findall(text)}
    if "summary" not in pairs:
        return None
    plan = Plan("summary", [], None, 0.0, float(pairs.get("summarising", 0)), {}, pairs["summary"])
    return Move(plan, 0, [], plan.answer)


def decide(messages: list[Message], command: str = DEFAULT_COMMAND) -> Move:
    """The next move in this conversation."""
    last = text_of(messages[-1])
    if last.startswith(_TO_SUMMARISE) and (move := _summary_of(last)) is not None:
        return move
    plans: list[Plan] = []
    start = len(messages)
    for index in range(len(messages) - 1, -1, -1):
        if messages[index].get("role") == "user":
            found = [
                plan
                for part in re.split(r"(?=\bop=)", text_of(messages[index]))
                if (plan := parse(part, command)) is not NOTHING
            ]
            if found:
                plans = found + plans
                start = index
        elif plans:
            break
    plan = _joined(plans) if plans else NOTHING
    done = sum(
        1 for message in messages[start:] if message.get("role") == "assistant" and message.get("tool_calls")
    )
    if done < len(plan.turns):
        return Move(plan, done, plan.turns[done], "")
    text = WORD * plan.words if plan.words is not None else f"done {plan.name or 'nothing'}"
    text = plan.answer or text
    return Move(plan, done, [], text)


def problems(request: dict[str, Any]) -> list[str]:
    """What a strict provider would refuse in this request."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        return ["messages: must be a list of objects that is not empty"]
    found = []
    awaited: list[str] = []
    answered: set[str] = set()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        found += [f"{where}: {problem}" for problem in _field_problems(message)]
        if message.get("role") == "tool":
            call_id = str(message.get("tool_call_id"))
            if call_id in awaited:
                awaited.remove(call_id)
                answered.add(call_id)
            else:
                again = "a second" if call_id in answered else "a"
                found.append(f"{where}: {again} result of {call_id!r}, which is not awaited")
            continue
        if awaited:
            found.append(f"{where}: {message.get('role')} before the results of {awaited}")
        awaited = [str(call.get("id")) for call in message.get("tool_calls") or []]
        found += [f"{where}: {problem}" for problem in _message_problems(message)]
    if awaited:
        found.append(f"results of {awaited} are missing")
    if messages[-1].get("role") == "assistant":
        found.append("the last message is the assistant's own")
    return found + _tool_problems(request.get("tools"))


# Of each role, the fields that OpenAI knows: it refuses any other.
_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "refusal", "audio", "function_call"},
    "tool": {"role", "content", "tool_call_id"},
}
MAX_CALL_ID_CHARS = 64


def _field_problems(message: Message) -> list[str]:
    role = str(message.get("role"))
    found = [f"unknown parameter {name!r}" for name in message if name not in _FIELDS.get(role, message)]
    content = message.get("content")
    kinds = {part.get("type") for part in content} if isinstance(content, list) else set()
    if "image_url" in kinds and role != "user":
        found.append(f"image URLs are only allowed for messages with role 'user', but this one is {role!r}")
    ids = [call.get("id") for call in message.get("tool_calls") or []] + [message.get("tool_call_id")]
    found += [
        f"string too long: {each!r} is an id of more than {MAX_CALL_ID_CHARS} characters"
        for each in ids
        if each and len(str(each)) > MAX_CALL_ID_CHARS
    ]
    return found


def _message_problems(message: Message) -> list[str]:
    role = message.get("role")
    if role in ("user", "system", "developer"):
        return (
            [] if text_of(message) or isinstance(message.get("content"), list) else [f"empty {role} message"]
        )
    if role != "assistant":
        return [f"unknown role {role!r}"]
    calls = message.get("tool_calls") or []
    if not calls:
        return [] if text_of(message) else ["assistant message with neither text nor calls"]
    ids = [call.get("id") for call in calls]
    found = [f"two calls with one id in {ids}"] if len(set(ids)) != len(ids) else []
    return found + [problem for call in calls for problem in _call_problems(call)]


def _call_problems(call: dict[str, Any]) -> list[str]:
    function = call.get("function") or {}
    found = []
    if not call.get("id"):
        found.append("call without id")
    if not _TOOL_NAME.match(str(function.get("name", ""))):
        found.append(f"call with the name {function.get('name')!r}")
    if not isinstance(function.get("arguments"), str):
        found.append("call whose arguments are no text")
    return found


def _tool_problems(tools: object) -> list[str]:
    if tools is None:
        return []
    if not isinstance(tools, list) or not tools:
        return ["tools: must be a list that is not empty, or absent"]
    found = []
    for tool in tools:
        function = tool.get("function") or {}
        if tool.get("type") != "function" or not _TOOL_NAME.match(str(function.get("name", ""))):
            found.append(f"tool {function.get('name')!r} is not well formed")
        elif not isinstance(function.get("parameters", {}), dict):
            found.append(f"tool {function['name']}: parameters must be an object")
    return found
