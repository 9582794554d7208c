"""The web tools as an executor makes them, beside a resolver and an object store of the test."""

import hashlib
from collections.abc import Mapping

from fairlead_common.protocol.content import ImageBlock, ToolOutcome
from fairlead_common.protocol.ids import new_id
from fairlead_common.protocol.messages import ToolCall
from fairlead_tools.web.fetch import WebFetch
from fairlead_tools.web.page import Pages
from fairlead_tools.web.transport import FetchLimits, Transport
from tests.support.outcomes import text_of
from tests.support.web_victim import Victim


class Kept:
    """An object store."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def put(self, data: bytes) -> str:
        name = hashlib.sha256(data).hexdigest()
        self.objects[name] = data
        return name


class Names:
    """A resolver. Each lookup of a name takes its next answer; the last one stays."""

    def __init__(self, answers: Mapping[str, list[list[str]]]) -> None:
        self._answers = {"localhost": [["127.0.0.1", "::1"]]}
        self._answers |= {name: list(each) for name, each in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if host not in self._answers:
            raise OSError(f"no such name: {host}")
        answers = self._answers[host]
        return answers.pop(0) if len(answers) > 1 else answers[0]


async def show_nothing(_: str) -> None:
    return


def call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(call_id=new_id(), session="s", name=name, arguments=arguments, workspace="", token="t")


class Fetcher:
    """`web_fetch`, whose `fetch` is a call by a model."""

    def __init__(
        self,
        allow: list[tuple[str, int]] | None = None,
        names: Mapping[str, list[list[str]]] | None = None,
        limits: FetchLimits | None = None,
        pages: Pages | None = None,
        cache_s: float = 0.0,
    ) -> None:
        self.objects = Kept()
        self.names = Names(names or {})
        lookup = {"look_up": self.names} if names is not None else {}
        transport = Transport(frozenset(allow or []), limits, **lookup)
        self.tool = WebFetch(
            transport, pages or Pages(), self.objects, user_agent="Fairlead/test", cache_s=cache_s
        )

    async def fetch(self, url: str, **more: object) -> ToolOutcome:
        return await self.tool.run(call("web_fetch", url=url, **more), show_nothing)

    async def text(self, url: str, **more: object) -> str:
        """The words of a fetch that succeeds."""
        outcome = await self.fetch(url, **more)
        assert not outcome.is_error, text_of(outcome)
        return text_of(outcome)

    async def refusal(self, url: str, **more: object) -> str:
        """The words of a fetch that fails."""
        outcome = await self.fetch(url, **more)
        assert outcome.is_error, text_of(outcome)
        assert outcome.status == "error"
        return text_of(outcome)


def pictures(outcome: ToolOutcome) -> list[ImageBlock]:
    return [block for block in outcome.content if isinstance(block, ImageBlock)]


SITE = "site.test"
LOCAL = {SITE: [["127.0.0.1"]]}


def site(server: Victim, limits: FetchLimits | None = None, **more: list[list[str]]) -> Fetcher:
    """A fetcher that may reach `server` as site.test, and nothing else on this machine."""
    return Fetcher(allow=[(SITE, server.port)], names={**LOCAL, **more}, limits=limits)
