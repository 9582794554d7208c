"""The tier of each test: what it needs, told from what it starts.

A class of `tests` that starts something names its tier, as `starts = "nats"` (see `TIERS`). A test is of that
tier when it, or a fixture it uses, refers to such a class (or to `subprocess`, a socket server), by itself or
through functions and classes of `tests`. What cannot be told that way is marked by hand. A test of no tier is
`pure`: it starts no process and opens no connection, and fails if it does.
"""

import inspect
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import pytest

# Everything but `pure`. `slow` is none: it tells how long a test takes, not what it needs.
TIERS: Final = frozenset({"process", "nats", "stack", "docker", "browser", "chaos"})

_TOLD: Final = TIERS | {"pure", "slow"}

# What Python announces when a process is started or a socket leaves the process.
_OUTSIDE: Final = frozenset(
    {
        "subprocess.Popen",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.system",
        "os.exec",
        "socket.bind",
        "socket.connect",
        "socket.sendto",
        "socket.sendmsg",
    }
)

_TESTS: Final = __name__.partition(".")[0]

# A test's own code that names these starts a process, or a server on a socket.
_OF_SUBPROCESS: Final = frozenset({"Popen", "run", "call", "check_call", "check_output"})
_SERVERS: Final = frozenset(
    {"HTTPServer", "ThreadingHTTPServer", "TCPSite", "create_server", "start_server", "start_unix_server"}
    | {"create_connection", "create_subprocess_exec", "create_subprocess_shell"}
)


# -- marking ---------------------------------------------------------------


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)


def _of_tests(thing: object) -> bool:
    return str(getattr(thing, "__module__", "")).partition(".")[0] == _TESTS


def _starts_a_process(function: FunctionType) -> bool:
    names = set(_names(function.__code__))
    return bool(names & _SERVERS or ("subprocess" in names and names & _OF_SUBPROCESS))


def _named_by(function: FunctionType) -> Iterator[object]:
    """What the function names, of modules too: `boxes.kill` is `kill` of the module `boxes`."""
    names = list(_names(function.__code__))
    modules = []
    for name in names:
        thing = function.__globals__.get(name)
        if isinstance(thing, ModuleType):
            modules.append(thing)
        elif thing is not None:
            yield thing
    for module in modules:
        if module.__name__.partition(".")[0] == _TESTS:
            yield from (vars(module)[name] for name in names if name in vars(module))


class Reach:
    """What functions and classes start, looked up once each."""

    def __init__(self) -> None:
        self._known: dict[int, frozenset[str]] = {}

    def of(self, thing: object) -> frozenset[str]:
        """The tiers of all that can be reached from it."""
        thing = inspect.unwrap(thing) if callable(thing) else thing
        known = self._known.get(id(thing))
        if known is not None:
            return known
        self._known[id(thing)] = frozenset()  # while it is under way: it may name itself
        found: set[str] = set()
        if isinstance(thing, type):
            if "starts" in vars(thing):
                found.add(str(vars(thing)["starts"]))
            for kept in (*thing.__bases__, *vars(thing).values()):
                inner = getattr(kept, "__func__", getattr(kept, "fget", kept))
                if isinstance(inner, FunctionType | type) and _of_tests(inner):
                    found |= self.of(inner)
        elif isinstance(thing, FunctionType):
            if _starts_a_process(thing):
                found.add("process")
            for named in _named_by(thing):
                if isinstance(named, FunctionType | type) and _of_tests(named):
                    found |= self.of(named)
        self._known[id(thing)] = frozenset(found)
        return self._known[id(thing)]


def _fixture_functions(item: pytest.Function) -> Iterator[object]:
    info = item._fixtureinfo
    for name in info.names_closure:
        for definition in info.name2fixturedefs.get(name, ())[-1:]:
            yield definition.func


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test the markers of its tiers."""
    reach = Reach()
    for item in items:
        found = {mark.name for mark in item.iter_markers()} & TIERS
        if isinstance(item, pytest.Function):
            for function in (item.function, *_fixture_functions(item)):
                found |= reach.of(function)
        for tier in sorted(found or {"pure"}):
            item.add_marker(tier)


# -- what is left out ------------------------------------------------------

_LEFT_OUT: Final = pytest.StashKey[Counter[str]]()
_FROM_WORKER: Final = "tiers_left_out"


def _left_out(config: pytest.Config) -> Counter[str]:
    if _LEFT_OUT not in config.stash:
        config.stash[_LEFT_OUT] = Counter()
    return config.stash[_LEFT_OUT]


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count by tier what `-m` or `-k` left out."""
    if items:
        left_out = _left_out(items[0].config)
        left_out["tests"] += len(items)
        left_out.update(mark for item in items for mark in {one.name for one in item.iter_markers()} & _TOLD)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist tells its controller, which collects nothing itself."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_FROM_WORKER] = dict(_left_out(session.config))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each worker collects the same, so that one of them is enough."""
    told = getattr(node, "workeroutput", {}).get(_FROM_WORKER)
    if told:
        node.config.stash[_LEFT_OUT] = Counter(told)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say plainly what was not run."""
    left_out = _left_out(terminalreporter.config)
    if left_out:
        tiers = ", ".join(f"{left_out[name]} {name}" for name in sorted(_TOLD) if left_out[name])
        terminalreporter.write_line(
            f"left out: {left_out['tests']} tests ({tiers}; some are of several tiers)"
        )


# -- the guard -------------------------------------------------------------


class _Guard:
    """Refuses what a pure test must not do, while one runs."""

    def __init__(self) -> None:
        self.watches = False
        self.seen: list[str] = []

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.watches and event in _OUTSIDE:
            self.seen.append(f"{event}{args[:2]!r}"[:200])
            raise PermissionError(f"a pure test may not do this: {self.seen[-1]}")


_guard: Final = _Guard()


def pytest_configure() -> None:
    """Listen to what Python does from now on."""
    sys.addaudithook(_guard)


def _watched(item: pytest.Item) -> Generator[None, object, object]:
    _guard.watches = item.get_closest_marker("pure") is not None
    try:
        return (yield)
    finally:
        _guard.watches = False
        seen, _guard.seen = _guard.seen, []
        if seen:
            pytest.fail(
                f"is marked pure, as nothing says what it starts, and did: {'; '.join(seen)}."
                " Mark it (process, nats, ...) or the class that starts it (tests/support/tiers.py).",
                pytrace=False,
            )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Watch the fixtures of a pure test."""
    return (yield from _watched(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch a pure test."""
    return (yield from _watched(item))
