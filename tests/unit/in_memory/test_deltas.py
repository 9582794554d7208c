"""Deltas to viewers: the first words at once, then a few messages a second, nothing lost or reordered."""

import asyncio

from fairlead_agent.turn.deltas import PERIOD_S, Deltas
from fairlead_common.protocol.events import Delta


class Viewer:
    """Notes when which delta was sent."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, Delta]] = []

    async def send(self, delta: Delta) -> None:
        self.seen.append((asyncio.get_running_loop().time(), delta))


async def test_words_that_come_one_by_one_are_sent_together_and_the_first_at_once() -> None:
    viewer = Viewer()
    deltas = Deltas(viewer.send)
    flushing = asyncio.create_task(deltas.run())
    began = asyncio.get_running_loop().time()
    words = [f"{number} " for number in range(200)]
    for word in words:
        await deltas.add(Delta(type="text_delta", index=0, text=word))
        await asyncio.sleep(0.005)
    await asyncio.sleep(2 * PERIOD_S)
    flushing.cancel()
    assert viewer.seen[0][0] - began < 0.001
    assert "".join(delta.text for _, delta in viewer.seen) == "".join(words)
    assert len(viewer.seen) <= 1.0 / PERIOD_S + 2
    pauses = [later[0] - earlier[0] for earlier, later in zip(viewer.seen, viewer.seen[1:], strict=False)]
    assert max(pauses) <= 2 * PERIOD_S


async def test_deltas_of_different_blocks_stay_apart_and_in_order() -> None:
    viewer = Viewer()
    deltas = Deltas(viewer.send)
    parts = [("thinking_delta", 0), ("text_delta", 1), ("text_delta", 1), ("tool_call_delta", 2)]
    for number, (kind, index) in enumerate(parts):
        await deltas.add(Delta(type=kind, index=index, text=str(number)))  # type: ignore[arg-type]
    await deltas.flush()
    assert [(d.type, d.index, d.text) for _, d in viewer.seen] == [
        ("thinking_delta", 0, "0"),
        ("text_delta", 1, "12"),
        ("tool_call_delta", 2, "3"),
    ]


async def test_a_call_that_comes_in_one_packet_is_one_delta() -> None:
    viewer = Viewer()
    deltas = Deltas(viewer.send)
    name = Delta(type="tool_call_delta", index=1, text="", name="bash", call_id="c1")
    words = Delta(type="text_delta", index=0, text="look: ")
    await deltas.add(words, name, Delta(type="tool_call_delta", index=1, text='{"command":"true"}'))
    assert [(d.index, d.text, d.name) for _, d in viewer.seen] == [
        (0, "look: ", None),
        (1, '{"command":"true"}', "bash"),
    ]
