"""Ids that are made of others fit into subjects, whatever they are made of."""

import pytest

from fairlead_common.protocol import subjects
from fairlead_common.protocol.ids import is_id
from fairlead_scheduler.jobs.job_store import token


@pytest.mark.parametrize("job", ["j", "x" * 26, "x" * 36, "x" * 40, "heartbeat-" + "a" * 64])
@pytest.mark.parametrize("slot", ["1795291944255", "r-" + "y" * 26, "r-" + "y" * 64, "t-hook-" + "z" * 40])
def test_a_token_is_an_id_that_leaves_room_for_a_prefix(job: str, slot: str) -> None:
    made = token(job, slot)
    assert is_id(made)
    for prefix in ("system", "heartbeat", "delivery", "update"):
        assert subjects.mail("main", "notice", f"{prefix}-{made}")
    assert len({token(job, slot), token(job, slot + "1"), token(job + "1", slot)}) == 3
    assert token(job, slot) == made
