"""What a session has read, and which calls could carry it out of the house."""

import re
from collections.abc import Iterable
from typing import Final, Literal
from urllib.parse import urlsplit

from fairlead_common.content import FETCHED, TextBlock, ToolOutcome, ToolResultMessage, TrustFlag, UserMessage
from fairlead_common.messages import ToolCall, ToolSpec
from fairlead_common.programs import works_offline
from fairlead_common.session_log.conversation import Item
from fairlead_common.session_marks import CHAT_EARLIER, CHAT_LAST, SYSTEM_PREFIX
from fairlead_common.shell_words import Shell

FETCH: Final = "web_fetch"
SEARCH: Final = "web_search"
_READERS: Final = frozenset(("read", "ls", "glob", "grep", "git_status", "git_diff", "git_log"))

NamedBy = Literal["", "person", "search"]
# Senders of prompts that models may have written: jobs, and files that heartbeats follow.
_NO_PEOPLE: Final = frozenset(("cron", "heartbeat"))

# An address in a text of people: with its scheme, or as they speak of it.
_ADDRESS: Final = re.compile(
    r"https?://[^\s<>\"'`|]{1,4096}|\b(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}\b(?:[:/][^\s<>\"'`|]{0,4096})?",
    re.I,
)
# What may stand behind an address in a sentence, and how much of it.
_AFTER: Final = tuple(".,;:!?)]}*_")
_MAX_AFTER: Final = 8


def brought(call: ToolCall, outcome: ToolOutcome) -> list[TrustFlag]:
    """What a call did to the trust of its session, by what is in its result."""
    lost: set[TrustFlag] = set()
    if outcome.is_error and call.name in (FETCH, SEARCH) and outcome.details.get(FETCHED) is False:
        lost.add("untrusted")  # an error in words of the executor
    if outcome.status == "error" and call.name in _READERS:
        lost.add("private")
    return [flag for flag in call.flags if flag not in lost]


def named_by(items: Iterable[Item], arguments: dict[str, object]) -> NamedBy:
    """Who named the address that a call would read: a person, a web search, or nobody.

    The whole address has to be the same: the model cannot have put anything into it.
    """
    wanted = _plain(str(arguments["url"])) if isinstance(arguments.get("url"), str) else ""
    found: NamedBy = ""
    for item in items if wanted else ():
        message = item.message
        if isinstance(message, UserMessage):
            if any(wanted in _spoken(text) for text in _by_people(message)):
                return "person"
        elif (
            isinstance(message, ToolResultMessage) and message.name == SEARCH and wanted in _results(message)
        ):
            found = "search"
    return found


def carries(
    spec: ToolSpec, shell: Shell | None, flags: Iterable[TrustFlag], named: NamedBy, *, trusting: NamedBy
) -> bool:
    """Whether the call could carry something out of the house that the model put into it.

    Args:
        trusting: whose addresses are read without a question: those of a person, or of a web search too.
            Where searches are trusted, what is asked of the configured provider counts as staying with it.
    """
    if "external" not in flags:
        return False
    if spec.name == FETCH and named and named in ("person", trusting):
        return False
    if spec.name == SEARCH and trusting == "search":
        return False
    plain = shell is not None and not shell.problem
    return not (plain and shell is not None and all(works_offline(words) for words in shell.commands))


def _by_people(message: UserMessage) -> list[str]:
    """The texts of a message that a person wrote: neither system lines nor the earlier part of a chat.

    Both may repeat what a model wrote, and stand in one message with the words of a person.
    """
    if message.untrusted or message.source == "system" or message.sender in _NO_PEOPLE:
        return []
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    return [_last_of_chat(text) for text in texts if not text.startswith(SYSTEM_PREFIX)]


def _last_of_chat(text: str) -> str:
    """The message to answer, of a prompt with an earlier part; any other text as it is.

    What was said earlier may contain the line that separates them, so the last such line counts.
    """
    if not text.startswith(f"{CHAT_EARLIER}\n\n"):
        return text
    return text.rpartition(f"\n\n{CHAT_LAST}\n\n")[2]


def _spoken(text: str) -> set[str]:
    found = set()
    for address in _ADDRESS.findall(text):
        whole = address if "://" in address else f"https://{address}"
        for _ in range(_MAX_AFTER):
            found.add(_plain(whole))
            if not whole.endswith(_AFTER):
                break
            whole = whole[:-1]
    return found


def _results(message: ToolResultMessage) -> set[str]:
    rows = message.outcome.details.get("results")
    rows = rows if isinstance(rows, list) else []
    return {_plain(row["url"]) for row in rows if isinstance(row, dict) and isinstance(row.get("url"), str)}


def _plain(url: str) -> str:
    """An address without what makes no difference: scheme, case of the host, fragment. Empty: it is none."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        return ""
    at = "" if port in (None, 80, 443) else f":{port}"
    return f"{parts.hostname}{at}{parts.path or '/'}?{parts.query}"
