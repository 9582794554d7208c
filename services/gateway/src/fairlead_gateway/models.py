"""Which models there are, and what is known of each, over HTTP. The agent service knows: it has the keys."""

from typing import Final

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from fairlead_common.errors import FairleadError, NotFoundError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.known_models import KnownModels
from fairlead_common.protocol.undecodable import UNDECODABLE
from fairlead_gateway.gateway import gateway_of
from fairlead_gateway.http.problems import Problem, json_response
from fairlead_gateway.http.request_parsing import check_parameters

log = structlog.get_logger()

WITHIN_S: Final = 7.0  # the agent service gives providers 4 s

_answer = msgspec.json.Decoder(KnownModels)


async def listing(request: Request) -> Response:
    """200 with all models; 503 if no agent service answers."""
    check_parameters(request)
    try:
        reply = await gateway_of(request).bus.request(subjects.AGENT_KNOWN_MODELS, b"", timeout_s=WITHIN_S)
        found = _answer.decode(reply.data)
    except (NotFoundError, FairleadError, TimeoutError, *UNDECODABLE) as error:
        log.warning("models_unanswered", error=type(error).__name__)
        text = "the agent service does not answer; try again"
        raise Problem(503, text, headers={"Retry-After": "2"}) from None
    return json_response(found)
