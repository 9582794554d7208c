"""Jobs, wakes and hooks: what HTTP clients ask of the scheduler goes to it as a NATS request, and back."""

from typing import Annotated, Any, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from fairlead_common.cron.jobs import Document
from fairlead_common.cron.requests import (
    MAX_FIRINGS,
    MAX_PAGE,
    AddJob,
    CronStatus,
    Fired,
    GetJob,
    Heartbeat,
    Hook,
    Jobs,
    ListJobs,
    ListRuns,
    NameJob,
    OneJob,
    Pause,
    Preview,
    Refusal,
    Removed,
    RunJob,
    Runs,
    UpdateJob,
    Wake,
)
from fairlead_common.cron.times import LAST_MS
from fairlead_common.errors import BusUnavailableError, InvalidInputError, NotFoundError
from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import check_id, new_id
from fairlead_gateway.gateway import gateway_of, principal_of
from fairlead_gateway.http.problems import Problem
from fairlead_gateway.http.request_parsing import check_parameters, decode, one
from fairlead_gateway.operation import Operation, Parameter
from fairlead_gateway.sessions.privilege_checks import check_agent

TIMEOUT_S: Final = 8.0
MAX_REQUEST_BYTES: Final = 512 * 1024  # one message of NATS is 1 MB, and its headers count
_STATUS: Final = {"invalid": 400, "not_found": 404, "conflict": 409, "limit": 409, "disabled": 409}
_HOOK_HEADERS: Final = 50

Key = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class NewJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /api/cron/jobs` and of a preview: the job as in docs/scheduling.md, and a key."""

    job: dict[str, Any]
    key: Key | None = None


class JobChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Body of `PATCH /api/cron/jobs/{job}`."""

    patch: dict[str, Any]
    if_updated_at_ms: int | None = None


class RunNow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /api/cron/jobs/{job}/run`."""

    mode: Literal["due", "force"] = "due"
    key: Key | None = None


class PauseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /api/cron/pause`."""

    paused: bool


class WakeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /api/wake`."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=65_536)]
    mode: Literal["now", "next-heartbeat"] = "next-heartbeat"
    session: Key = "main"
    key: Key | None = None


class HeartbeatBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /api/heartbeat`."""

    agent: Key = "main"
    force: bool = True
    key: Key | None = None


class Nothing(msgspec.Struct, frozen=True):
    """An empty request."""


class _Answer(msgspec.Struct, frozen=True):
    error: Refusal | None = None


async def _ask(request: Request, method: str, body: msgspec.Struct, status: int = 200) -> Response:
    """The scheduler's answer to one request, as it is; raises as `_answer_to` does."""
    return Response(await _answer_to(request, method, body), status, media_type="application/json")


async def _answer_to(request: Request, method: str, body: msgspec.Struct) -> bytes:
    """The JSON that the scheduler answers to one request.

    Raises:
        Problem: it refused, or none answers.
        InvalidInputError: the request is larger than one message may be.
    """
    bus = gateway_of(request).bus
    data = msgspec.json.encode(body)
    if len(data) > MAX_REQUEST_BYTES:
        raise InvalidInputError("body", f"at most {MAX_REQUEST_BYTES} bytes, got {len(data)} bytes")
    try:
        reply = await bus.request(subjects.api(method), data, timeout_s=TIMEOUT_S)
    except NotFoundError:
        raise Problem(503, "no scheduler answers: is the service `scheduler` running?") from None
    except BusUnavailableError as error:
        raise Problem(503, f"the scheduler did not answer: {error}") from None
    refusal = msgspec.json.decode(reply.data, type=_Answer).error
    if refusal is not None:
        text = f"{refusal.field}: {refusal.message}" if refusal.field else refusal.message
        raise Problem(_STATUS.get(refusal.code, 503), text, field=refusal.field)
    return reply.data


async def _read_job(request: Request, job: str) -> Document:
    """The stored job; 404 if there is none."""
    data = await _answer_to(request, "cron.get", GetJob(id=job, count=1))
    return msgspec.json.decode(data, type=OneJob).job


def _check_agent(request: Request, payload: object) -> None:
    """Refuse a payload whose agent may do more than `main` to those who may not approve.

    Raises:
        Problem: 403.
    """
    agent = payload.get("agent") if isinstance(payload, dict) else None
    if isinstance(agent, str):
        config = gateway_of(request).config.current
        check_agent(principal_of(request), config, agent, "payload.agent")


def _key(request: Request, key: str | None) -> str | None:
    header = request.headers.get("idempotency-key")
    if header is not None and key is not None and header != key:
        raise InvalidInputError("key", "differs from the header Idempotency-Key")
    return key if header is None else check_id(header, "Idempotency-Key")


def _job(request: Request) -> str:
    return check_id(request.path_params["job"], "job")


def _number(request: Request, name: str, default: int, most: int) -> int:
    text = one(request, name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 16 and 1 <= int(text) <= most):
        raise InvalidInputError(name, f"must be a number from 1 to {most}, got {text[:80]!r}")
    return int(text)


async def jobs(request: Request) -> Response:
    """Jobs, by id."""
    check_parameters(request, "all", "limit", "after")
    asked = one(request, "all")
    everything = "false" if asked is None else asked
    if everything not in ("true", "false"):
        raise InvalidInputError("all", f"must be true or false, got {everything[:80]!r}")
    after = one(request, "after")
    body = ListJobs(
        include_disabled=everything == "true",
        limit=_number(request, "limit", 200, MAX_PAGE),
        after="" if after is None else check_id(after, "after"),
    )
    return await _ask(request, "cron.list", body)


async def add(request: Request) -> Response:
    """201 with the job and its next firings."""
    check_parameters(request)
    body = await decode(request, NewJob)
    key = _key(request, body.key) or new_id()
    _check_agent(request, body.job.get("payload"))
    wanted = AddJob(job=body.job, key=key, sender=principal_of(request).user)
    return await _ask(request, "cron.add", wanted, 201)


async def preview(request: Request) -> Response:
    """What would be understood, and when it would fire. Nothing is stored."""
    check_parameters(request)
    body = await decode(request, NewJob)
    return await _ask(request, "cron.preview", AddJob(job=body.job))


async def get(request: Request) -> Response:
    """One job, and when it fires next."""
    check_parameters(request, "count", "after_ms")
    wanted = GetJob(
        id=_job(request),
        count=_number(request, "count", 5, MAX_FIRINGS),
        after_ms=_number(request, "after_ms", 0, LAST_MS),
    )
    return await _ask(request, "cron.get", wanted)


async def change(request: Request) -> Response:
    """The job as it is after the change."""
    check_parameters(request)
    body = await decode(request, JobChange)
    wanted = UpdateJob(id=_job(request), patch=body.patch, if_updated_at_ms=body.if_updated_at_ms)
    if not principal_of(request).may("approve") and body.patch != {"enabled": False}:
        wanted = await _checked(request, wanted)
    return await _ask(request, "cron.update", wanted)


async def _checked(request: Request, wanted: UpdateJob) -> UpdateJob:
    """The change, if neither the job nor what it becomes has an agent that may do more than `main`.

    It applies only to the job as it was read here: another change may come in between.

    Raises:
        Problem: 403; 409 if the job is not the one that the client changes.
    """
    document = await _read_job(request, wanted.id)
    for payload in (document.get("payload"), wanted.patch.get("payload")):
        _check_agent(request, payload)
    stamp = document.get("updatedAtMs")
    if wanted.if_updated_at_ms not in (None, stamp):
        raise Problem(409, f"job {wanted.id} was changed at {stamp}")
    return msgspec.structs.replace(wanted, if_updated_at_ms=stamp if isinstance(stamp, int) else None)


async def remove(request: Request) -> Response:
    """Whether there was one."""
    check_parameters(request)
    return await _ask(request, "cron.remove", NameJob(id=_job(request)))


async def run(request: Request) -> Response:
    """202 with whether a run was set going."""
    check_parameters(request)
    body = await decode(request, RunNow, default=RunNow())
    wanted = RunJob(id=_job(request), mode=body.mode, key=_key(request, body.key) or new_id())
    if not principal_of(request).may("approve"):
        _check_agent(request, (await _read_job(request, wanted.id)).get("payload"))
    return await _ask(request, "cron.run", wanted, 202)


async def runs(request: Request) -> Response:
    """Runs of one job, newest first."""
    check_parameters(request, "limit")
    return await _ask(
        request, "cron.runs", ListRuns(id=_job(request), limit=_number(request, "limit", 50, MAX_PAGE))
    )


async def status(request: Request) -> Response:
    """Whether it fires, and what comes next."""
    check_parameters(request)
    return await _ask(request, "cron.status", Nothing())


async def pause(request: Request) -> Response:
    """Stop or go on firing."""
    check_parameters(request)
    body = await decode(request, PauseBody)
    return await _ask(request, "cron.pause", Pause(paused=body.paused))


async def wake(request: Request) -> Response:
    """202 once the line is stored."""
    check_parameters(request)
    body = await decode(request, WakeBody)
    wanted = Wake(
        text=body.text, mode=body.mode, session=body.session, key=_key(request, body.key) or new_id()
    )
    return await _ask(request, "wake", wanted, 202)


async def heartbeat(request: Request) -> Response:
    """202 with whether a heartbeat was set going."""
    check_parameters(request)
    body = await decode(request, HeartbeatBody, default=HeartbeatBody())
    wanted = Heartbeat(agent=body.agent, force=body.force, key=_key(request, body.key) or new_id())
    return await _ask(request, "heartbeat", wanted, 202)


async def hook(request: Request) -> Response:
    """202 with whether the trigger set something going."""
    name = check_id(request.path_params["hook"], "hook")
    try:
        body = (await request.body()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInputError("body", f"must be UTF-8: {error.reason} at byte {error.start}") from None
    headers = {key: value for key, value in request.headers.items() if key not in ("authorization", "cookie")}
    if len(headers) > _HOOK_HEADERS:
        raise InvalidInputError("headers", f"at most {_HOOK_HEADERS}, got {len(headers)}")
    wanted = Hook(name=name, body=body, headers=headers, key=_key(request, None))
    return await _ask(request, "hook", wanted, 202)


_LIMIT: Final = Parameter("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}, "how many at most")


def _operation(
    method: str,
    path: str,
    endpoint: Any,
    text: str,
    answer: type,
    *,
    status: int = 200,
    problems: tuple[int, ...] = (409,),
    **more: Any,
) -> Operation:
    return Operation(method, f"/api/{path}", endpoint, text, {status: answer}, problems=problems, **more)


OPERATIONS: Final = (
    _operation(
        "GET",
        "cron/jobs",
        jobs,
        "scheduled jobs, by id",
        Jobs,
        parameters=(
            Parameter("all", {"type": "boolean"}, "also those that are disabled"),
            _LIMIT,
            Parameter(
                "after", {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}, "`next` of the page before"
            ),
        ),
    ),
    _operation(
        "POST", "cron/jobs", add, "a new job, and when it fires next", OneJob, status=201, body=NewJob
    ),
    _operation(
        "POST", "cron/preview", preview, "what a job would be; nothing is stored", Preview, body=NewJob
    ),
    _operation("GET", "cron/status", status, "whether jobs fire, and what comes next", CronStatus),
    _operation("POST", "cron/pause", pause, "stop firing, or go on", CronStatus, body=PauseBody),
    _operation(
        "GET",
        "cron/jobs/{job}",
        get,
        "one job, and when it fires next",
        OneJob,
        problems=(404, 409),
        parameters=(
            Parameter("count", {"type": "integer", "minimum": 1, "maximum": MAX_FIRINGS}, "how many firings"),
            Parameter(
                "after_ms",
                {"type": "integer", "minimum": 1, "maximum": LAST_MS},
                "only firings after this moment",
            ),
        ),
    ),
    _operation(
        "PATCH",
        "cron/jobs/{job}",
        change,
        "change some fields of a job; null removes",
        OneJob,
        problems=(404, 409),
        body=JobChange,
    ),
    _operation(
        "DELETE",
        "cron/jobs/{job}",
        remove,
        "remove a job",
        Removed,
        problems=(404, 409),
    ),
    _operation(
        "POST",
        "cron/jobs/{job}/run",
        run,
        "run a job now",
        Fired,
        status=202,
        problems=(404, 409),
        body=RunNow,
        body_required=False,
    ),
    _operation(
        "GET",
        "cron/jobs/{job}/runs",
        runs,
        "runs of a job, newest first",
        Runs,
        problems=(404, 409),
        parameters=(_LIMIT,),
    ),
    _operation(
        "POST", "wake", wake, "a line for a session, and its heartbeat", Fired, status=202, body=WakeBody
    ),
    _operation(
        "POST",
        "heartbeat",
        heartbeat,
        "a heartbeat of an agent now",
        Fired,
        status=202,
        problems=(404, 409),
        body=HeartbeatBody,
        body_required=False,
    ),
    _operation(
        "POST",
        "hooks/{hook}",
        hook,
        "what another system says; the trigger of this name decides what it sets going",
        Fired,
        status=202,
        problems=(404, 409),
    ),
)
