"""What each header of a message means."""

from typing import Final

from fairlead_common.protocol import subjects as s

HEADERS: Final = {
    s.H_REPLY_TO: "subject that receives the final answer of the prompt",
    s.H_EXPECTED: "`0`: stored only as the first message on its subject",
    s.H_EXPECTED_ON: "the subject that the expected sequence is about, if it is another",
    s.H_OBJECT: "the payload is empty and lies in the object store under this name",
    s.H_PARTS: "of a tool request: `<tag>:<count>`, its payload lies in parts beside it",
    s.H_FORMAT: "what a record of a log holds: 2 for several entries; missing for one",
    s.H_CURSOR: "sequence of the last mail that this entry consumed",
    s.H_STATE: "`open`, `parked` or `closed`: the state of the session after this entry",
    s.H_TRACE: "W3C trace context",
    s.H_SEEN: "sequence of the last record of the session that the sender knew of",
    s.H_RESPONSE: "what the request for a response of the Responses API asked for beside the prompt, as JSON",
    s.H_SESSION: "the session that the call belongs to",
    s.H_CALL: "id of the call, the same for every repetition: an idempotency key",
    s.H_AGENT: "the agent that calls",
    s.H_ACTS_FOR: "the user for whom the model acts: who wrote last, or else the owner of the session",
    s.H_TAINTED: "`1`: the session has read what strangers wrote",
    s.H_PROGRESS: "`1` on a reply: it is progress, the result follows",
}

MAIL: Final = (s.H_REPLY_TO, s.H_EXPECTED, s.H_OBJECT, s.H_TRACE, s.H_SEEN, s.H_RESPONSE)
LOG: Final = (s.H_CURSOR, s.H_STATE, s.H_OBJECT)
REQUEST: Final = (s.H_PARTS, s.H_OBJECT, s.H_TRACE)
CALL: Final = (s.H_SESSION, s.H_CALL, s.H_AGENT, s.H_ACTS_FOR, s.H_TAINTED)
