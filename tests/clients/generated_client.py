"""A program on a client that `openapi-python-client` made: `fairlead_api`, which is in no package.

It prints one JSON value. FAIRLEAD_URL names the gateway, FAIRLEAD_TOKEN holds the token.
"""

import json
import os
import sys
import time

from fairlead_api import AuthenticatedClient
from fairlead_api.api.approvals import approvals_decide, approvals_list
from fairlead_api.api.sessions import (
    sessions_create,
    sessions_entries,
    sessions_events,
    sessions_get,
    sessions_prompt,
)
from fairlead_api.models import (
    AgentEnd,
    ApprovalList,
    DecisionBody,
    EntryEvent,
    EntryPage,
    Error,
    NewSession,
    PromptStored,
    PromptWords,
    Session,
    StoredMessageEntry,
    StoredRunEndEntry,
    ToolResultMessage,
    UserMessage,
)
from fairlead_api.types import Unset

PATIENCE_S = 30.0


def created(client: AuthenticatedClient) -> str:
    """A new session."""
    session = sessions_create.sync(client=client, body=NewSession(agent="careful"))
    assert isinstance(session, Session)
    return str(session.id)


def asked(client: AuthenticatedClient, session: str) -> PromptStored:
    """A prompt that is sent twice under one key."""
    words = PromptWords(text='op=GENPY steps=1 run="echo typed" answer="all done"', key="typed-1")
    first = sessions_prompt.sync(session, client=client, body=words)
    again = sessions_prompt.sync(session, client=client, body=words)
    assert isinstance(first, PromptStored)
    assert again == first
    return first


def approved(client: AuthenticatedClient, session: str) -> str:
    """The name of the tool whose call waited for a decision."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        waiting = approvals_list.sync(client=client, session=session)
        assert isinstance(waiting, ApprovalList)
        for approval in waiting.approvals:
            assert not isinstance(approval.shown_hash, Unset)
            body = DecisionBody(decision="once", shown_hash=approval.shown_hash)
            decided = approvals_decide.sync_detailed(approval.id, client=client, body=body)
            assert decided.status_code == 202, decided.content
            return str(approval.tool)
        time.sleep(0.02)
    raise TimeoutError("no approval was asked for")


def ended(client: AuthenticatedClient, session: str) -> None:
    """Return once the session rests."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        about = sessions_get.sync(session, client=client)
        assert isinstance(about, Session)
        if about.status == "idle":
            return
        time.sleep(0.02)
    raise TimeoutError("the session did not come to rest")


def entries(client: AuthenticatedClient, session: str) -> list[str]:
    """What was said and done, told by the types of the entries."""
    page = sessions_entries.sync(session, client=client)
    assert isinstance(page, EntryPage)
    found: list[str] = []
    for entry in page.entries:
        match entry:
            case StoredMessageEntry(message=UserMessage()):
                found.append("user")
            case StoredMessageEntry(message=ToolResultMessage() as result):
                found.append(f"result {result.outcome.status}")
            case StoredMessageEntry():
                found.append("assistant")
            case StoredRunEndEntry(outcome=outcome):
                found.append(f"end {outcome}")
            case _:
                pass
    return found


def events(client: AuthenticatedClient, session: str) -> list[str]:
    """The events of the stream from its beginning, as far as the log goes."""
    request = sessions_events._get_kwargs(session)
    found: list[str] = []
    with client.get_httpx_client().stream(**request) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: "):
                continue
            data = json.loads(line.removeprefix("data: "))
            match data["type"]:
                case "entry":
                    found.append(type(EntryEvent.from_dict(data).entry).__name__)
                case "agent_end":
                    found.append(f"agent_end {AgentEnd.from_dict(data).outcome}")
                case "caught_up":
                    break
                case _:
                    pass
    return found


def refused(client: AuthenticatedClient) -> list[list[object]]:
    """Errors, with their status."""
    missing = sessions_get.sync_detailed("nonesuch", client=client)
    wrong = sessions_create.sync_detailed(client=client, body=NewSession(title="x" * 501))
    found: list[list[object]] = []
    for answer in (missing, wrong):
        assert isinstance(answer.parsed, Error)
        problem = answer.parsed.error
        field = None if isinstance(problem.field, Unset) else problem.field
        found.append([int(answer.status_code), problem.code, field])
    return found


def main() -> None:
    """All of it."""
    url, token = os.environ["FAIRLEAD_URL"], os.environ["FAIRLEAD_TOKEN"]
    with AuthenticatedClient(base_url=url, token=token) as client:
        session = created(client)
        asked(client, session)
        tool = approved(client, session)
        ended(client, session)
        shown = {
            "tool": tool,
            "entries": entries(client, session),
            "events": events(client, session),
            "refused": refused(client),
        }
        sys.stdout.write(json.dumps(shown) + "\n")


if __name__ == "__main__":
    main()
