"""The mail of a session, as it is read: what lands in its mailbox."""

import msgspec

from fairlead_common.errors import BadMessageError
from fairlead_common.protocol.messages import MAX_TEXT_CHARS, Abort, Decision, ToolResult, UserInput
from fairlead_common.protocol.notices import Notice

INPUT_KINDS = ("prompt", "steer", "followup")
_input = msgspec.json.Decoder(UserInput)
_abort = msgspec.json.Decoder(Abort)
_decision = msgspec.json.Decoder(Decision)
_result = msgspec.json.Decoder(ToolResult)
Mail = UserInput | Abort | Decision | Notice | ToolResult


def decode_mail(kind: str, key: str, payload: bytes) -> Mail:
    """The mail that a payload of this kind holds.

    Raises:
        BadMessageError: it does not fit its kind; the text says where.
    """
    try:
        match kind:
            case "prompt" | "steer" | "followup":
                if payload.lstrip()[:1] == b"{":
                    return _input.decode(payload)
                return UserInput(text=_text(payload))
            case "abort":
                return _abort.decode(payload) if payload.strip() else Abort()
            case "approval":
                return _decision.decode(payload)
            case "result":
                return _result.decode(payload)
            case "notice":
                return Notice(name=key, body=msgspec.Raw(payload or b"null"))
            case _:
                raise BadMessageError(f"unknown kind of mail: {kind!r}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessageError(f"{kind}: {error}") from error


def _text(payload: bytes) -> str:
    text = payload.decode("utf-8")
    if not text.strip():
        raise BadMessageError("text: must not be empty")
    if len(text) > MAX_TEXT_CHARS:
        raise BadMessageError(f"text: at most {MAX_TEXT_CHARS} characters, got {len(text)}")
    return text
