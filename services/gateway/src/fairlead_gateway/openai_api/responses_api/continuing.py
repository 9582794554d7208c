"""Where a response that goes on from another one has its place: in the same session, or in a fork of it."""

import hashlib

from msgspec.structs import replace

from fairlead_common.protocol import subjects
from fairlead_gateway.gateway import Gateway
from fairlead_gateway.http.problems import Problem
from fairlead_gateway.openai_api.accepted import AcceptedCall, Start
from fairlead_gateway.openai_api.conversations import has_gone_on
from fairlead_gateway.openai_api.history import History
from fairlead_gateway.openai_api.known_answers import KnownAnswer, KnownAnswers
from fairlead_gateway.openai_api.responses_api.fold import ResponseFold
from fairlead_gateway.openai_api.responses_api.ids import ResponseId, call_id_of
from fairlead_gateway.openai_api.responses_api.input_items import CallOutput
from fairlead_gateway.openai_api.responses_api.objects import FunctionCallItem, OutputMessage
from fairlead_gateway.openai_api.responses_api.stored import StoredResponse, read_response
from fairlead_gateway.sessions.client_results import waiting_calls


async def continued_call(
    gateway: Gateway, known: KnownAnswers, previous: StoredResponse, call: AcceptedCall, agent: str
) -> AcceptedCall:
    """The call behind the previous response: in its session if that ends there, else in a fork of it.

    Of several requests that go on from one response the first one has the session.

    Args:
        call: with the session that is made if there is to be a fork. agent: that is to answer.

    Raises:
        Problem: 400, the previous response is not over, or waits for results.
    """
    fold = await read_response(gateway, previous, waits=False)
    if not fold.is_over:
        raise Problem(
            400,
            f"the response {previous.id} is not over: wait for its end, or cancel it",
            code="previous_response_in_progress",
            field="previous_response_id",
        )
    session = previous.id.session
    if fold.outcome == "requires_action" and (waiting := await waiting_calls(gateway, session)):
        raise _no_output(session, waiting[0].call_id)
    summary = gateway.index.session(session)
    same_agent = summary is None or not summary.agent or summary.agent == agent
    mail = subjects.mail(session, "prompt", call.key)
    is_repeated = await gateway.bus.last(subjects.SESSIONS, mail) is not None
    if is_repeated or (
        same_agent
        and not await has_gone_on(gateway, session, fold.end_seq)
        and await known.follow(_digest(previous.id), session, call.key)
    ):
        return replace(call, session=session, own=False)
    return replace(call, start=Start(session, fold.last_entry, 0))


def _digest(response: ResponseId) -> str:
    return hashlib.sha256(str(response).encode()).hexdigest()[:32]


async def awaited_outputs(gateway: Gateway, outputs: list[CallOutput]) -> list[CallOutput]:
    """Those of the outputs that a session waits for; empty: all of them came before.

    Raises:
        Problem: 400, one that is waited for is missing, or they are of several sessions.
    """
    session = outputs[-1].place.session
    given = {output.place.name: output for output in outputs if output.place.session == session}
    waiting = [call.call_id for call in await waiting_calls(gateway, session)]
    if not any(name in given for name in waiting):
        return []
    for name in waiting:
        if name not in given:
            raise _no_output(session, name)
    return [given[name] for name in waiting]


def _no_output(session: str, call: str) -> Problem:
    text = f"No tool output found for function call {call_id_of(session, call)}."
    return Problem(400, text, code="missing_tool_output", field="input")


async def remember_answer(
    known: KnownAnswers, history: History, fold: ResponseFold, session: str, *, hidden: bool
) -> None:
    """Record the answer to a conversation, so that a client that sends it without ids finds its session.

    Args:
        hidden: the session has more than the client was told, before this response.
    """
    messages = [item for item in fold.output.items if isinstance(item, OutputMessage)]
    calls = [item.call_id for item in fold.output.items if isinstance(item, FunctionCallItem)]
    told = "".join(part.text for message in messages for part in message.content)
    if told.strip() or calls:
        answer = KnownAnswer(session, fold.last_entry, fold.end_seq, hidden or fold.used_tools)
        await known.remember(history.with_answer(told, calls), answer)
