"""What a provider's refusal means for the run, by HTTP status, error code and text: for all back ends."""

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from fairlead_agent.models.interface import ModelError

MAX_TEXT_CHARS: Final = 1000

_OVERFLOW: Final = re.compile(
    r"context.{0,20}(length|window|size)|maximum context|too many tokens|(prompt|input) is too long"
    r"|prompt too long|input token count.{0,40}exceeds|maximum prompt length|reduce the length of"
    r"|prompt token count.{0,40}exceeds the limit|exceeded model token limit|exceed.{0,12}context limit"
    r"|token limit exceeded|request_too_large|string_above_max_length|string too long",
    re.IGNORECASE | re.DOTALL,
)
_QUOTA: Final = re.compile(
    r"insufficient[_ ](quota|balance|credits)|billing_hard_limit|credit balance is too low|payment required",
    re.IGNORECASE,
)
_RATE: Final = re.compile(r"rate.?limit|too.many.requests|resource.?exhausted|throttl", re.IGNORECASE)
_AUTH: Final = re.compile(
    r"(invalid|incorrect).api.?key|authentication|unauthori[sz]ed|permission.?denied|permission_error",
    re.IGNORECASE,
)
_FILTER: Final = re.compile(
    r"content.?filter|content.?policy|content management policy|responsible_?ai|usage policy"
    r"|\bflagged\b|content exists risk|data_inspection_failed|prohibited.content",
    re.IGNORECASE,
)
_IMAGE: Final = re.compile(r"\bimages?\b|image_url|image_parse|multimodal|\bvision\b", re.IGNORECASE)
_FATAL: Final = re.compile(
    r"invalid.?request|bad.?request|not_found|model.{0,80}(not found|does not exist)|unsupported"
    r"|not supported|invalid.?argument|unprocessable",
    re.IGNORECASE,
)
_MAY_PASS: Final = frozenset({408, 409, 425, 429})


def provider_error(
    text: str,
    *,
    status: int | None = None,
    code: str = "",
    retry_after_s: float | None = None,
) -> ModelError:
    """The error to raise for what a provider sent.

    Args:
        text: for people; the provider's own words are part of it.
        status: of the HTTP answer, or the numeric code of an error inside a stream; None: there was none.
        code: its error code and type, as far as it sent any.
    """
    words = f"{code} {text}"
    text = text[:MAX_TEXT_CHARS]
    if status == 402 or _QUOTA.search(words):
        return ModelError("fatal", text, code="model_quota_exceeded")
    if status == 429 or _RATE.search(code):
        return ModelError("retryable", text, retry_after_s, code="model_rate_limited")
    refused = status is None or 400 <= status < 500
    if refused and _FILTER.search(words):
        return ModelError("fatal", text, code="content_filter", refused="input")
    if status in (401, 403) or (status is None and _AUTH.search(words)):
        return ModelError("auth", text)
    if status == 413 or _OVERFLOW.search(words):
        return ModelError("overflow", text)
    if status is None and _RATE.search(text):
        return ModelError("retryable", text, retry_after_s, code="model_rate_limited")
    if status is not None and (status in _MAY_PASS or status >= 500):
        return ModelError("retryable", text, retry_after_s)
    if refused and (status is not None or _FATAL.search(words)):
        if _IMAGE.search(words):
            return ModelError("fatal", text, code="input_refused", refused="images")
        return ModelError("fatal", text)
    return ModelError("retryable", text, retry_after_s)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by `retry-after-ms` or `Retry-After` (a number or an HTTP date); None: neither says."""
    lower = {name.lower(): value for name, value in headers.items()}
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            wait_s = float(lower[name]) * scale
        except (KeyError, ValueError):
            continue
        if 0 <= wait_s < float("inf"):
            return wait_s
    try:
        until = parsedate_to_datetime(lower["retry-after"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return None
    return max(0.0, until - time.time())
