"""Checks of `fairlead doctor` on a home that a test made."""

from collections.abc import Callable
from typing import Any

from fairlead_common.installation.home import Home
from fairlead_node.doctor.context import DoctorContext
from fairlead_node.doctor.finding import Finding
from fairlead_node.doctor.nats_facts import NatsFacts
from tests.support.ports import free_port


def look(
    place: Home, *, offline: bool = False, url: str = "", facts: NatsFacts | None = None, **env: Any
) -> DoctorContext:
    made = DoctorContext(place, url or f"http://127.0.0.1:{free_port()}", env, offline=offline)
    made._facts = facts or NatsFacts()
    return made


def mended(check: Callable[[DoctorContext], Finding], seen: DoctorContext) -> str:
    """What the remedy says; the check finds nothing afterwards."""
    finding = check(seen)
    assert finding.mend is not None
    said = finding.mend.do()
    again = check(seen)
    assert again.state == "ok", again
    return said
