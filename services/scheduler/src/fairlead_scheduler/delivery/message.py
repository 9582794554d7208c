"""The message of one delivery."""

import msgspec


def out_key(job_id: str, slot: str) -> str:
    """The key of a delivery in the bucket `runs`. Keys are stored: it never changes."""
    return f"out.{job_id}.{slot}"


class DeliveryMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A stored delivery: key `out_key(job_id, slot)` of the bucket `runs`.

    Fields:
        session: that is notified if it cannot be delivered.
        owner: the user for whom the job runs, who must be allowed to write to the session that it goes
            to; empty: `admin`.
        held: the run has not ended yet.
    """

    job_id: str
    slot: str
    name: str
    channel: str
    to: str | None
    session: str
    owner: str = ""
    text: str
    created_at_ms: int
    held: bool = False
    untrusted: bool = False
    attempts: int = 0
    not_before_ms: int = 0

    @property
    def key(self) -> str:
        """Its key."""
        return out_key(self.job_id, self.slot)

    @property
    def delivery_id(self) -> str:
        """Idempotency key, the same for every attempt."""
        return f"{self.job_id}-{self.slot}"
