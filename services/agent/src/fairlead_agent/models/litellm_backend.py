"""Every other provider, through litellm. The only module that imports it, and not before it must.

Importing costs seconds and two hundred megabytes, so it happens in a thread, when the configuration
names such a model. Settings keep it quiet: no calls home, no .env files, no retries of its own.
"""

import asyncio
import importlib
import os
import re
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import msgspec

from fairlead_agent.models.interface import (
    Finish,
    ModelError,
    ModelRequest,
    Piece,
    TextPiece,
    ThinkingPiece,
    ToolCallPiece,
)
from fairlead_common.content import StopReason, Usage

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
}
_STOP: dict[str, StopReason] = {"stop": "stop", "length": "length", "tool_calls": "tool_use"}
_OVERFLOW = re.compile(r"context.{0,20}(length|window)|prompt is too long|too many tokens", re.IGNORECASE)


class LiteLLM:
    """The back end `litellm/...`."""

    def __init__(self, *, silence_s: float) -> None:
        self._silence_s = silence_s
        self._module: ModuleType | None = None
        self._lock = asyncio.Lock()

    async def warm_up(self) -> ModuleType:
        """The library, imported once, off the event loop."""
        async with self._lock:
            if self._module is None:
                os.environ.update(_ENVIRONMENT)
                module = await asyncio.to_thread(importlib.import_module, "litellm")
                module.suppress_debug_info = True  # type: ignore[attr-defined]
                module.drop_params = True  # type: ignore[attr-defined]
                self._module = module
        return self._module

    async def close(self) -> None:
        """Nothing of ours to let go of."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[list[Piece]]:
        """See `Model.stream`."""
        litellm = await self.warm_up()
        options: dict[str, Any] = {
            "model": request.model,
            "messages": request.decoded(),
            "stream": True,
            "stream_options": {"include_usage": True},
            "num_retries": 0,
            "timeout": self._silence_s,
        }
        if request.tools:
            options["tools"] = msgspec.json.decode(request.tools_wire)
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if request.max_output_tokens is not None:
            options["max_tokens"] = request.max_output_tokens
        if request.thinking != "off":
            options["reasoning_effort"] = request.thinking
        try:
            response = await litellm.acompletion(**options)
            async for pieces in _pieces(litellm, request.model, response, self._silence_s):
                yield pieces
        except ModelError:
            raise
        except Exception as error:  # litellm's exceptions share no base class of their own
            raise _sorted_error(litellm, error) from error


async def _pieces(litellm: Any, model: str, response: Any, silence_s: float) -> AsyncIterator[list[Piece]]:
    stop: StopReason = "stop"
    usage = None
    chunks = aiter(response)
    while True:
        try:
            async with asyncio.timeout(silence_s):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            break
        usage = getattr(chunk, "usage", None) or usage
        if not chunk.choices:
            continue
        choice = chunk.choices[0]
        if choice.finish_reason:
            stop = _STOP.get(choice.finish_reason, "stop")
        if batch := _of_delta(choice.delta):
            yield batch
    yield [Finish(stop, _usage(litellm, model, usage))]


def _of_delta(delta: Any) -> list[Piece]:
    blocks = getattr(delta, "thinking_blocks", None) or ()
    pieces: list[Piece] = [
        ThinkingPiece("", block["signature"]) for block in blocks if block.get("signature")
    ]
    if thought := getattr(delta, "reasoning_content", None):
        pieces.append(ThinkingPiece(thought))
    if delta.content:
        pieces.append(TextPiece(delta.content))
    for call in delta.tool_calls or ():
        function = call.function
        pieces.append(ToolCallPiece(call.index or 0, function.arguments or "", call.id, function.name))
    return pieces


def _usage(litellm: Any, model: str, usage: Any) -> Usage:
    if usage is None:
        return Usage()
    prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
    details = getattr(usage, "prompt_tokens_details", None)
    try:
        paid = sum(litellm.cost_per_token(model=model, prompt_tokens=prompt, completion_tokens=completion))
    except Exception:  # noqa: BLE001 - a model without a known price costs nothing here
        paid = 0.0
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        cache_read_tokens=getattr(details, "cached_tokens", 0) or 0,
        cache_write_tokens=getattr(usage, "cache_creation_input_tokens", 0) or 0,
        cost_usd=paid,
    )


def _sorted_error(litellm: Any, error: Exception) -> ModelError:
    text = f"{type(error).__name__}: {error}"[:1000]
    # The order matters: the first is a subclass of BadRequestError.
    if isinstance(error, litellm.ContextWindowExceededError) or _OVERFLOW.search(text):
        return ModelError("overflow", text)
    if isinstance(error, (litellm.AuthenticationError, litellm.PermissionDeniedError)):
        return ModelError("auth", text)
    if isinstance(error, (litellm.BadRequestError, litellm.NotFoundError)):
        return ModelError("fatal", text)
    code = "model_rate_limited" if isinstance(error, litellm.RateLimitError) else ""
    return ModelError("retryable", text, code=code)
