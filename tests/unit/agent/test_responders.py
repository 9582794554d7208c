"""What other services ask of an agent worker: no back end and no model's words may end it."""

from fairlead_agent.responders.inquiries import Inquiries


class BrokenBackend:
    """A back end whose check fails in a way that no one expects."""

    async def check(self, _: str) -> str:
        raise ValueError("Port could not be cast to integer value as 'port'")


class OneBackend:
    """A registry that knows nothing else."""

    def resolve(self, name: str) -> tuple[BrokenBackend, str]:
        return BrokenBackend(), name


async def test_check_of_a_model_that_fails_in_its_own_way_is_a_problem_of_that_model() -> None:
    inquiries = Inquiries.__new__(Inquiries)
    inquiries._registry = OneBackend()  # type: ignore[assignment]
    state = await inquiries._state("litellm/anthropic/claude", ["main"])
    assert (state.model, state.state) == ("litellm/anthropic/claude", "problem")
    assert "ValueError: Port could not be cast" in state.text
