"""An editor for the Agent Client Protocol: the client side of its SDK, which starts `fairlead acp` itself."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
from acp import schema

from tests.clients.stack import Stack

PATIENCE_S = 30.0


class Editor:
    """Notes what it is sent. `form`: what a form is filled in with."""

    def __init__(self, form: dict[str, Any] | None = None) -> None:
        self.updates: list[tuple[str, Any]] = []
        self.asked: list[tuple[schema.ToolCallUpdate, list[schema.PermissionOption]]] = []
        self.forms: list[tuple[str, Any]] = []
        self.wire: list[dict[str, Any]] = []
        self.agent: Any = None
        self._decisions: list[str] | None = None
        self._form = form

    def decide(self, *options: str) -> None:
        """The options that requests for permission are answered with from now on; later ones are not."""
        self._decisions = list(options)

    # -- the SDK's Client ----------------------------------------------------------

    def on_connect(self, conn: Any) -> None:
        self.agent = conn

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        self.asked.append((tool_call, options))
        assert self._decisions is not None, f"nobody expects to be asked about {tool_call.title}"
        if not self._decisions:  # no one looks
            await asyncio.sleep(600)
        chosen = self._decisions.pop(0)
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen)
        )

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self.forms.append((message, mode))
        assert self._form is not None
        return schema.AcceptElicitationResponse(action="accept", content=self._form)

    # -- what it saw ---------------------------------------------------------------

    def of(self, session: str, *kinds: str) -> list[Any]:
        """The updates of a session of these kinds, in order."""
        return [
            update
            for of, update in self.updates
            if of == session and (not kinds or update.session_update in kinds)
        ]

    def said(self, session: str) -> str:
        """All words of the agent, as they came."""
        text = "".join(chunk.content.text for chunk in self.of(session, "agent_message_chunk"))
        return text.rstrip()  # the scripted model ends with a blank

    def heard(self, session: str) -> str:
        """All words of the person, as they were replayed."""
        chunks = self.of(session, "user_message_chunk")
        return "".join(chunk.content.text for chunk in chunks if chunk.content.type == "text")

    def notes(self, session: str) -> str:
        """All thoughts, and notices of Fairlead."""
        return "".join(chunk.content.text for chunk in self.of(session, "agent_thought_chunk"))

    def call(self, session: str, number: int = 0) -> dict[str, Any]:
        """A tool call of a session with all its updates taken over."""
        started = self.of(session, "tool_call")[number]
        fields: dict[str, Any] = started.model_dump(exclude_none=True)
        for update in self.of(session, "tool_call_update"):
            if update.tool_call_id == started.tool_call_id:
                fields |= update.model_dump(exclude_none=True)
        return fields

    async def until(self, what: Callable[[], Any], timeout_s: float = PATIENCE_S) -> Any:
        """Wait until `what()` is true; its value."""
        deadline = time.monotonic() + timeout_s
        while not (found := what()):
            assert time.monotonic() < deadline, f"not within {timeout_s:g} s; got {self.updates[-20:]}"
            await asyncio.sleep(0.02)
        return found

    async def new(self, cwd: Path, **fields: Any) -> str:
        """A new session in a folder; its id."""
        made = await self.agent.new_session(cwd=str(cwd), mcp_servers=fields.pop("mcp_servers", []), **fields)
        return str(made.session_id)

    async def say(self, session: str, *blocks: Any) -> Any:
        """Prompt a session; the answer to the request. Texts are made blocks."""
        prompt = [acp.text_block(each) if isinstance(each, str) else each for each in blocks]
        async with asyncio.timeout(PATIENCE_S * 2):
            return await self.agent.prompt(session_id=session, prompt=prompt)


@asynccontextmanager
async def editing(
    stack: Stack,
    editor: Editor,
    *arguments: str,
    capabilities: schema.ClientCapabilities | None = None,
    environ: dict[str, str] | None = None,
) -> AsyncIterator[Any]:
    """The process of `fairlead acp`, with which the editor has agreed on the protocol."""
    async with acp.spawn_agent_process(
        editor,  # type: ignore[arg-type] # what it does not answer, no test is asked
        str(Path(sys.executable).with_name("fairlead")),
        "acp",
        *arguments,
        env={**stack.up.environ, **(environ or {})},
        observers=[lambda event: editor.wire.append(event.message)],
        use_unstable_protocol=True,
    ) as (connection, process):
        editor.agent = connection
        async with asyncio.timeout(PATIENCE_S):
            agreed = await connection.initialize(
                protocol_version=acp.PROTOCOL_VERSION, client_capabilities=capabilities
            )
        assert agreed.protocol_version == acp.PROTOCOL_VERSION
        yield process
