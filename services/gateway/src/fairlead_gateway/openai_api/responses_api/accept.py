"""A request for a response, accepted: its place, its session, and the mail that it becomes."""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import structlog
from msgspec.structs import replace
from starlette.requests import Request

from fairlead_common.errors import FairleadError, InvalidInputError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.messages import UserInput
from fairlead_common.protocol.notices import UpdateSession
from fairlead_common.received import Headers
from fairlead_gateway.gateway import Gateway, answering
from fairlead_gateway.http.problems import Problem
from fairlead_gateway.identity.principal import Principal
from fairlead_gateway.identity.session_access import check_chosen_id, check_own_session, check_session
from fairlead_gateway.openai_api.accepted import AcceptedCalls, Visit
from fairlead_gateway.openai_api.attempts import (
    Attempt,
    attempt_of,
    check_call_session,
    check_present,
    named_session,
    recorded,
)
from fairlead_gateway.openai_api.conversations import new_session, placed_call
from fairlead_gateway.openai_api.history import History
from fairlead_gateway.openai_api.known_answers import KnownAnswers
from fairlead_gateway.openai_api.prompt import prompt_of
from fairlead_gateway.openai_api.request import ChatMessage
from fairlead_gateway.openai_api.responses_api.continuing import (
    awaited_outputs,
    continued_call,
    remember_answer,
)
from fairlead_gateway.openai_api.responses_api.conversation_items import brought
from fairlead_gateway.openai_api.responses_api.conversation_store import read_conversation
from fairlead_gateway.openai_api.responses_api.fold import ResponseFold
from fairlead_gateway.openai_api.responses_api.ids import (
    OWN_PREFIX,
    ResponseId,
    conversation_id_of,
    parse_conversation_id,
)
from fairlead_gateway.openai_api.responses_api.input_items import (
    CallOutput,
    GivenDecision,
    ResponseInput,
    input_of,
    words_in,
)
from fairlead_gateway.openai_api.responses_api.parameters import ResponseParameters, header_of
from fairlead_gateway.openai_api.responses_api.request import (
    InputItem,
    ResponseRequest,
    format_of,
    thinking_of,
    tools_of,
)
from fairlead_gateway.openai_api.responses_api.run_answers import store_answer
from fairlead_gateway.openai_api.responses_api.stored import StoredResponse, find_response, must_find
from fairlead_gateway.sessions.privilege_checks import check_new
from fairlead_gateway.sessions.prompts import store_words
from fairlead_gateway.sessions.session_lookup import summary_of
from fairlead_gateway.sessions.session_sources import API, take_up
from fairlead_gateway.sessions.sessions import create_session

log = structlog.get_logger()


class AcceptedResponse(NamedTuple):
    """A response whose mail is stored; for the fields see `StoredResponse` and `AcceptedRequest`."""

    stored: StoredResponse
    event_seq: int
    own: bool
    visit: Visit | None
    backoff_s: float


class Acceptance:
    """Accepts one request.

    Args:
        raw: its body, as it came.

    Raises:
        Problem, InvalidInputError: 400, something in it is not here, or does not fit.
    """

    def __init__(
        self, gateway: Gateway, request: Request, raw: bytes, body: ResponseRequest, principal: Principal
    ) -> None:
        tools = tools_of(body, request.headers.get("x-fairlead-tools") or "")
        self._gateway = gateway
        self._request = request
        self._raw = raw
        self._body = body
        self._principal = principal
        self._said: ResponseInput = input_of(body)
        self._options = UserInput(
            text="-",
            thinking=thinking_of(body),
            client_tools=tools.tools,
            only_client_tools=tools.only,
            tool_choice=tools.choice,
            response_format=format_of(body),
        )
        self.calls = AcceptedCalls(gateway.bus)
        self._added_seq = 0  # of the last item of the conversation that comes with the input
        self._added_words = ""
        self._history_kept: tuple[History, str, bool] | None = None
        self.known = KnownAnswers(gateway.bus, gateway.config.current.gateway.openai.session_days)

    async def accept(self) -> AcceptedResponse:
        """Store the mail of the request.

        Raises:
            Problem: it cannot be accepted; nothing of it is stored but its record.
        """
        if self._body.conversation is not None:
            await self._bring_added()
        said = self._said
        previous = await self._previous()
        if said.decisions and not said.outputs and not said.new:
            return await self._decide(previous)
        for decision in said.decisions:
            await store_answer(self._gateway, self._principal, decision, {})
        for output in said.outputs:
            await check_session(self._gateway, self._principal, output.place.session, "write")
        awaited = await awaited_outputs(self._gateway, said.outputs) if said.outputs else []
        if awaited and not said.new:
            first = awaited[0].place
            return await self._go_on(ResponseId(first.session, first.name, "clientresult"), awaited, previous)
        if not said.new and (response := await self._sent_before()) is not None:
            return await self._go_on(response, [], previous)
        if not awaited and not said.new and said.uncalled:
            text = f"No tool call found for function call output with call_id {said.uncalled[:200]}."
            raise Problem(400, text, code="unknown_tool_call", field="input")
        return await self._prompt(previous, awaited)

    async def _bring_added(self) -> None:
        """Put the items that were added to the conversation, and wait for a response, before the input."""
        session = self._named()
        kept = await read_conversation(self._gateway, session)
        if kept.about is None and not kept.added:
            return
        if await self._gateway.seen(session) is not None:
            await check_session(self._gateway, self._principal, session, "write")
        elif kept.about is None or kept.about.owner != self._principal.user:
            raise Problem(
                404, f"there is no conversation {conversation_id_of(session)!r}", field="conversation"
            )
        waiting = kept.waiting(await brought(self._gateway, session))
        if not waiting:
            return
        added = [replace(each.item, id=None) for each in waiting]
        given = self._body.input
        items = [InputItem(content=given)] if isinstance(given, str) else given
        if isinstance(given, str) and not given.strip():
            items = []
        self._said = input_of(replace(self._body, input=[*added, *items]))
        last = max((n for n, each in enumerate(added) if each.role == "assistant"), default=-1)
        words = [words_in(each) for each in added[last + 1 :] if each.role == "user"]
        self._added_words = "\n\n".join(each for each in words if each.strip())
        self._added_seq = waiting[-1].seq

    async def _sent_before(self) -> ResponseId | None:
        """The response that goes on with these outputs already."""
        for output in reversed(self._said.outputs):
            response = ResponseId(output.place.session, output.place.name, "clientresult")
            if await find_response(self._gateway, response) is not None:
                return response
        return None

    async def remember(self, fold: ResponseFold) -> None:
        """Record the answer, so that a client that sends the conversation without ids finds its session."""
        if self._history_kept is None or fold.problem is not None or not fold.last_entry:
            return
        history, session, hidden = self._history_kept
        try:
            async with answering():
                await remember_answer(self.known, history, fold, session, hidden=hidden)
        except (FairleadError, TimeoutError) as error:
            log.warning("answer_not_remembered", session=session, error=str(error))

    async def _previous(self) -> StoredResponse | None:
        """The response that this one goes on from: named, or told by the items that the input repeats.

        Raises:
            Problem: 404, there is no response of the name.
        """
        body = self._body
        if body.previous_response_id is not None:
            name = body.previous_response_id
            return await must_find(self._gateway, self._principal, name, "write", "previous_response_id")
        if self._said.known is None or self._named():
            return None
        await check_session(self._gateway, self._principal, self._said.known.session, "write")
        found = await find_response(self._gateway, self._said.known)
        if found is None:
            raise Problem(
                404,
                f"the input repeats items of {self._said.known}, which does not exist (any more); send them "
                "without `id`, and their words are taken",
                code="previous_response_not_found",
                field="input",
            )
        return found

    def _named(self) -> str:
        """The session that the client names; empty if it names none."""
        wanted = self._body.conversation
        if wanted is None:
            return named_session(self._request)
        text = wanted if isinstance(wanted, str) else wanted.id
        session = parse_conversation_id(text)
        if session is None:
            raise InvalidInputError("conversation", f"must be `conv_` and a session, got {text[:80]!r}")
        return session

    # -- results of the client's tools ---------------------------------------------------

    async def _go_on(
        self,
        response: ResponseId,
        answers: Sequence[CallOutput | GivenDecision],
        previous: StoredResponse | None,
    ) -> AcceptedResponse:
        """Store what a parked run waits for. With the last of it the run goes on."""
        gateway, session = self._gateway, response.session
        if previous is not None and previous.id.session != session:
            raise InvalidInputError("previous_response_id", "the input is for a run of another response")
        attempt = await attempt_of(
            self._request, self.calls, self._raw, self._principal.user, prefix=OWN_PREFIX, named=session
        )
        attempt = attempt._replace(session=session, key=response.key, own=False)
        seen = await gateway.must_exist(session)
        event = await gateway.bus.last(subjects.EVENTS, subjects.event(session))
        visit = await recorded(self.calls, attempt)
        await check_present(self._request, attempt)
        header = header_of(await self._parameters(previous))
        for answer in answers:
            own = header if answer.place.name == response.key else {}
            await store_answer(gateway, self._principal, answer, {**seen, **own})
        stored = await self._must_be_stored(response)
        return AcceptedResponse(stored, event.seq if event else 0, False, visit, attempt.backoff_s)

    async def _decide(self, previous: StoredResponse | None) -> AcceptedResponse:
        """Store decisions. The response answers the last of them, for all must be stored when it begins."""
        last = self._said.decisions[-1].place
        await check_session(self._gateway, self._principal, last.session, "approve")
        response = ResponseId(last.session, last.name, "approval")
        known = await find_response(self._gateway, response) is not None
        return await self._go_on(response, [] if known else self._said.decisions, previous)

    # -- prompts -------------------------------------------------------------------------

    async def _prompt(self, previous: StoredResponse | None, outputs: list[CallOutput]) -> AcceptedResponse:
        """Store a prompt, in its session.

        Args:
            outputs: of calls that the session waits for; they come before the prompt.
        """
        gateway, named = self._gateway, self._named()
        parameters = await self._parameters(previous)
        history = await self._history(parameters)
        attempt = await attempt_of(
            self._request,
            self.calls,
            self._raw,
            self._principal.user,
            prefix=OWN_PREFIX,
            named=outputs[0].place.session if outputs else named if previous is None else "",
        )
        attempt = await self._placed(attempt, history, previous)
        if self._body.conversation is not None and attempt.again:
            before = await find_response(gateway, ResponseId(attempt.session, attempt.key))
            if before is not None and before.parameters.added_seq:  # with items that wait no longer
                await self._check_access(attempt, named)
                return AcceptedResponse(before, 0, attempt.own, attempt.visit, attempt.backoff_s)
        self._history_kept = history, attempt.session, attempt.hidden
        visit, seen, event, prompt = await asyncio.gather(
            recorded(self.calls, attempt),
            gateway.seen(attempt.session),
            gateway.bus.last(subjects.EVENTS, subjects.event(attempt.session)),
            prompt_of(gateway.objects, history, self._principal.user),
        )
        if seen is not None:
            await self._check_access(attempt, named)
        await check_present(self._request, attempt)
        if seen is None:
            await self._make(attempt, history, previous, named)
            seen = {} if attempt.own else await gateway.must_exist(attempt.session)
        else:
            if not attempt.own and previous is None and not outputs:
                await take_up(gateway, gateway.index.session(attempt.session))
            await self._instruct(attempt, parameters, previous, history.instructions, seen)
        options = self._options
        prompt = replace(
            prompt,
            thinking=options.thinking,
            client_tools=options.client_tools,
            only_client_tools=options.only_client_tools,
            tool_choice=options.tool_choice,
            response_format=options.response_format,
        )
        for output in outputs:
            await store_answer(gateway, self._principal, output, seen)
        if self._added_words and prompt.text.startswith(self._added_words):
            chars = len(self._added_words) + (2 if len(prompt.text) > len(self._added_words) else 0)
            parameters = replace(parameters, added_chars=chars)
        trace = self._request.headers.get(subjects.H_TRACE)
        headers = {**seen, **header_of(parameters)}
        await store_words(gateway, attempt.session, "prompt", attempt.key, prompt, trace, headers)
        stored = await self._must_be_stored(ResponseId(attempt.session, attempt.key))
        return AcceptedResponse(stored, event.seq if event else 0, attempt.own, visit, attempt.backoff_s)

    async def _history(self, parameters: ResponseParameters) -> History:
        """The conversation behind what is known, with all instructions that hold for it."""
        texts = [self._body.instructions or ""]
        if parameters.system:
            texts.append((await self._gateway.objects.get(parameters.system)).decode())
        words = "\n\n".join(text for text in texts if text.strip())
        system = [ChatMessage(role="system", content=words)] if words else []
        messages = self._said.messages
        if not messages:
            raise InvalidInputError(
                "input", "must have a message, or the output of a call that is waited for"
            )
        owner = [OWN_PREFIX, self._body.model, self._principal.user, str(self._body.user or "")]
        return History(owner, [*system, *messages])

    async def _placed(self, attempt: Attempt, history: History, previous: StoredResponse | None) -> Attempt:
        """The attempt, in the session that its conversation goes on in."""
        if not attempt.own or (attempt.again and not attempt.keyed):
            return attempt
        if attempt.keyed and (first := await self.calls.first(attempt.keyed)) is not None:
            return attempt.of_call(first)
        if previous is not None:
            call = await continued_call(self._gateway, self.known, previous, attempt.call, self._body.model)
        else:
            call = await placed_call(self._gateway, self.known, history, attempt.call)
        if attempt.keyed:
            call = await self.calls.accept_first(attempt.keyed, call)
        return attempt.of_call(call)

    async def _check_access(self, attempt: Attempt, named: str) -> None:
        """Refuse a session of another user; those of previous responses and of calls were checked before."""
        if attempt.own:
            await check_own_session(self._gateway, self._principal, attempt.session)
        elif self._body.conversation is not None:
            await check_session(self._gateway, self._principal, attempt.session, "write")
            agent = (await summary_of(self._gateway, attempt.session)).agent
            if agent != self._body.model:
                raise InvalidInputError("model", f"must be {agent!r}, the agent of this conversation")
        elif named:
            await check_call_session(self._request, attempt)

    async def _make(
        self, attempt: Attempt, history: History, previous: StoredResponse | None, named: str
    ) -> None:
        gateway, principal = self._gateway, self._principal
        if not attempt.own:
            check_chosen_id(principal, gateway.config.current, attempt.session)
        if attempt.start is not None and previous is not None:
            await check_own_session(gateway, principal, attempt.start.origin)
        source = API if attempt.own else ""
        notice = await new_session(gateway, history, self._body.model, attempt.start, principal, source)
        check_new(principal, gateway.config.current, attempt.session, notice)
        try:
            await create_session(gateway, attempt.session, notice)
        except Problem as problem:
            if problem.status != 409:  # else another request was first
                raise
            await self._check_access(attempt, named)

    async def _instruct(
        self,
        attempt: Attempt,
        parameters: ResponseParameters,
        previous: StoredResponse | None,
        instructions: str,
        seen: Headers,
    ) -> None:
        """Have other instructions hold from this prompt on. Those of the previous response do not count."""
        if previous is not None:
            before = previous.parameters
            if (before.instructions, before.system) == (parameters.instructions, parameters.system):
                return
        elif attempt.own or not instructions:
            return  # a conversation that was found has the same ones; a named session keeps its own
        await self._gateway.bus.create(
            subjects.SESSIONS,
            subjects.mail(attempt.session, "notice", f"update-{attempt.key}"),
            msgspec.json.encode(UpdateSession(instructions=instructions, sender=self._principal.user)),
            seen,
            point="gateway.update",
        )

    # -- what is kept of the request -----------------------------------------------------

    async def _parameters(self, previous: StoredResponse | None) -> ResponseParameters:
        body = self._body
        before = previous.parameters.system if previous else ""
        texts = [(await self._gateway.objects.get(before)).decode()] if before else []
        texts += self._said.instructions
        return ResponseParameters(
            agent=body.model,
            created_at=int(time.time()),
            background=bool(body.background),
            store=body.store is not False,
            metadata=body.metadata or {},
            previous=body.previous_response_id,
            conversation=self._named() if body.conversation is not None else None,
            instructions=await self._stored_text(body.instructions or ""),
            system=await self._stored_text("\n\n".join(text for text in texts if text.strip())),
            max_output_tokens=body.max_output_tokens,
            parallel_tool_calls=body.parallel_tool_calls is not False,
            truncation=body.truncation or "disabled",
            user=body.user,
            added_seq=self._added_seq,
        )

    async def _stored_text(self, text: str) -> str:
        """Name of the object with this text; empty for none."""
        return await self._gateway.objects.put(text.encode()) if text else ""

    async def _must_be_stored(self, response: ResponseId) -> StoredResponse:
        """What was stored, by this request or the one that it repeats.

        Raises:
            Problem: 409, the session was deleted in the meantime.
        """
        stored = await find_response(self._gateway, response)
        if stored is None:
            raise Problem(409, f"the session {response.session} was deleted in the meantime")
        return stored
