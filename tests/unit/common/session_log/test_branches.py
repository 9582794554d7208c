"""Branches and summaries: what the model is shown is what the parents of the last entry lead through."""

from hypothesis import given
from hypothesis import strategies as st

from fairlead_common.protocol.branch_entries import CompactionUndoneEntry
from fairlead_common.protocol.entries import CustomEntry
from fairlead_common.session_log.state import SessionState
from tests.support.branch_world import BranchWorld


@given(st.data())
def test_conversation_is_what_the_parents_lead_through(data: st.DataObject) -> None:
    """Random histories of messages, other entries, moves to any entry, summaries and undone summaries."""
    world = BranchWorld()
    world.add(CustomEntry, name="x")
    for _ in range(data.draw(st.integers(1, 30))):
        acts = ["say", "say", "say", "other", "navigate"]
        acts += ["compact"] if world.state.items and not world.state.lacks_history else []
        acts += ["undo"] if world.state.compacted else []
        match data.draw(st.sampled_from(acts)):
            case "say":
                world.say()
            case "other":
                world.add(CustomEntry, name="x")
            case "navigate":
                _, entry = data.draw(st.sampled_from(world.log))
                if data.draw(st.booleans()):  # an owner has restored it, or a cold one has not
                    world.shown()
                world.navigate(entry.id, data.draw(st.sampled_from(["", "what was left"])))
            case "compact":
                world.compact(data.draw(st.integers(1, len(world.state.items))))
            case _:
                assert world.state.compacted is not None
                world.add(CompactionUndoneEntry, compaction=world.state.compacted.id)
                world.shown()
    expected = world.expected()
    assert [item.entry_id for item in world.restored().items] == expected
    assert world.shown() == expected
    cold = SessionState("s")
    for seq, entry in world.log:
        cold.apply(entry, seq, 10)
    if cold.lacks_history:
        cold.take_conversation(world.restored())
    assert [item.entry_id for item in cold.items] == expected


def test_undone_summary_shows_again_what_it_stood_for() -> None:
    world = BranchWorld()
    said = [world.say() for _ in range(6)]
    world.compact(2)
    assert [item.entry_id for item in world.state.items][1:] == said[-2:]
    later = world.say()
    assert world.state.compacted is not None
    world.add(CompactionUndoneEntry, compaction=world.state.compacted.id)
    assert world.shown() == [*said, later]
    world.compact(1)
    assert world.shown()[1:] == [later]


def test_weight_is_that_of_what_is_kept() -> None:
    world = BranchWorld()
    for _ in range(10):
        world.say()
    assert world.state.weight == 100
    world.compact(2)
    assert world.state.weight == 2 * 10 + len("so far")
