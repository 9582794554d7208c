"""The address `/ws`: lets connections in, and ends them when the gateway drains."""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from fairlead_gateway.gateway import Gateway
from fairlead_gateway.http.problems import Problem
from fairlead_gateway.operation import Operation
from fairlead_gateway.websocket import frames
from fairlead_gateway.websocket.connection import (
    CLOSED_POLICY,
    CLOSED_RESTART,
    CLOSED_UNAUTHORIZED,
    SocketConnection,
    authenticate,
    connect_params,
    first_request,
)
from fairlead_gateway.websocket.methods import Caller, Methods
from fairlead_gateway.websocket.presence import Presence

PATH: Final = "/ws"


def socket_endpoint(
    app: ASGIApp, gateway: Gateway, operations: tuple[Operation, ...], presence: Presence
) -> Callable[[WebSocket], Awaitable[None]]:
    """The endpoint of `PATH`.

    Args:
        app: answers the operations that methods are.
    """
    methods = Methods(operations)

    async def endpoint(socket: WebSocket) -> None:
        if gateway.streams.draining:
            await socket.close(CLOSED_RESTART, "this gateway is shutting down")
            return
        await socket.accept()
        done = await gateway.streams.hold(
            _serve(socket, app, gateway, methods, presence), lambda: not gateway.streams.draining, 1.0
        )
        if not done and socket.client_state is WebSocketState.CONNECTED:
            await socket.close(CLOSED_RESTART, "this gateway is shutting down: connect again")

    return endpoint


async def upgrade_required(_: Request) -> Response:
    """Whoever asks by plain HTTP.

    Raises:
        Problem: 426.
    """
    raise Problem(
        426, "this is the WebSocket API: connect with ws:// or wss://", headers={"Upgrade": "websocket"}
    )


async def _serve(
    socket: WebSocket, app: ASGIApp, gateway: Gateway, methods: Methods, presence: Presence
) -> None:
    address = socket.state.asked.address
    abort: Callable[[], None] = socket.scope.get("fairlead.abort", lambda: None)
    frame_id = ""
    try:
        presence.arrive(address)
        try:
            first = await first_request(socket)
            frame_id = first.id
            wanted = connect_params(first)
            principal = await authenticate(gateway, socket, wanted)
        finally:
            presence.leave_waiting(address)
        caller = Caller(principal, address, socket.state.asked.secure)
        connection = SocketConnection(socket, app, gateway, presence, caller, methods, abort)
        presence.enter(connection, principal, wanted.client)
        try:
            await connection.run(first, wanted)
        finally:
            presence.leave(connection)
    except* WebSocketDisconnect as group:
        for leaf in _leaves(group):
            # They keep what was to be sent until the garbage collector comes.
            leaf.__traceback__ = leaf.__context__ = None
    except* Problem as group:
        problem = next(each for each in _leaves(group) if isinstance(each, Problem))
        await socket.send({"type": "websocket.send", "text": frames.refusal(frame_id, problem).decode()})
        code = CLOSED_UNAUTHORIZED if problem.status in (401, 403) else CLOSED_POLICY
        await socket.close(code, problem.message[:120])


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [
        leaf
        for each in group.exceptions
        for leaf in (_leaves(each) if isinstance(each, BaseExceptionGroup) else [each])
    ]
