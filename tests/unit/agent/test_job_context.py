"""How much of a job's session its model is shown."""

from fairlead_agent.turn.job_context import EARLIER_SHARE, first_shown
from fairlead_common.protocol.content import (
    AssistantMessage,
    ImageBlock,
    Message,
    TextBlock,
    ToolOutcome,
    ToolResultMessage,
    UserMessage,
)
from fairlead_common.session_log.conversation import Item

WINDOW = 10_000
RUN_BYTES = 4_000  # about 1,000 tokens


def item(message: Message) -> Item:
    return Item(entry_id="e", message=message)


def prompt(text: str = "check", sender: str | None = "cron") -> Item:
    return item(UserMessage(content=[TextBlock(text=text)], source="prompt", sender=sender))


def run(size: int = RUN_BYTES) -> list[Item]:
    """A prompt, a call's result and an answer, together about `size` bytes."""
    outcome = ToolOutcome(status="ok", content=[TextBlock(text="x" * (size - 200))])
    result = ToolResultMessage(call_id="c", name="bash", outcome=outcome)
    return [prompt(), item(result), item(AssistantMessage(content=[TextBlock(text="done")], model="m"))]


def shown(items: list[Item]) -> list[Item]:
    return items[first_shown(items, WINDOW) :]


def test_session_of_people_is_shown_whole() -> None:
    items = [prompt(sender="admin"), *run() * 50]
    assert first_shown(items, WINDOW) == 0
    assert first_shown([], WINDOW) == 0


def test_few_runs_of_a_job_are_shown_whole() -> None:
    assert first_shown(run() * 3, WINDOW) == 0


def test_of_many_runs_the_newest_that_fit_are_shown_and_each_begins_with_its_prompt() -> None:
    items = run() * 400
    part = shown(items)
    assert part[0].message == prompt().message
    assert len(part) % 3 == 0
    earlier = len(part) // 3 - 1
    assert 3 <= earlier <= EARLIER_SHARE * WINDOW / 1000 + 1


def test_what_is_shown_stays_the_same_throughout_a_run() -> None:
    items = run() * 400
    first = first_shown(items, WINDOW)
    more = [*items, *run(40_000)[1:]]  # the last run goes on
    assert first_shown(more, WINDOW) == first


def test_run_that_is_too_large_by_itself_is_left_out_later() -> None:
    items = [*run(400_000), *run()]
    assert shown(items) == items[3:]


def test_what_is_left_out_anyway_does_not_count() -> None:
    large = [Item("large", each.message) for each in run(400_000)]
    assert first_shown([*large, *run()], WINDOW, {"large"}) == 0


def test_last_run_is_always_shown() -> None:
    items = [*run(), *run(400_000)]
    assert shown(items)[-3:] == items[3:]


def test_words_of_people_in_between_belong_to_the_run_before() -> None:
    asked = [*run(), prompt("and now?", sender="admin"), *run()[1:]]
    items = [*asked, *asked]
    assert first_shown(items, 100) == len(asked)


def test_images_count() -> None:
    picture = UserMessage(
        content=[ImageBlock(object="o", media_type="image/png")] * 10, source="prompt", sender="cron"
    )
    items = [item(picture), *run()]
    assert first_shown(items, WINDOW) == 1
