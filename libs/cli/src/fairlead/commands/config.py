"""`fairlead config`: the stored document, over NATS with the home's credentials."""

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click
import msgspec

from fairlead.document import Revision, access_of, check, connection, load, revisions, save
from fairlead.errors import FAILED, USAGE, CommandError
from fairlead.home import home_from_environment
from fairlead_common.bus import Bus

_T = TypeVar("_T")
Json = dict[str, Any]


@click.group()
def config() -> None:
    """Read and change the configuration document.

    Changes reach the running services at once. What `fairlead up --set` was given goes before them.
    """


@config.command("get")
@click.argument("key", required=False)
@click.option("--stored", is_flag=True, help="Only what is stored, without the defaults.")
def get(key: str | None, stored: bool) -> None:
    """Show the configuration, or one value of it (`agents.main.mode`)."""
    revision = _with_bus(load)
    content = revision.content if stored else _effective(revision.content)
    value = content if key is None else _at(content, key)
    click.echo(value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False))


@config.command("set")
@click.argument("key")
@click.argument("value")
def set_value(key: str, value: str) -> None:
    """Change one value: `fairlead config set agents.main.mode allow-all`.

    Lists and objects are written as JSON.
    """
    content: object = value
    if value[:1] in ("[", "{", '"'):
        try:
            content = json.loads(value)
        except ValueError as error:
            raise CommandError(f"{key}: not JSON: {error}", USAGE) from error

    def change(document: Json) -> None:
        _put(document, key, content)
        _put(
            document, key, _at(_effective(document), key)
        )  # a number as a number, once it is known to be one

    click.echo(f"revision {_with_bus(lambda bus: _change(bus, change))}", err=True)


@config.command("unset")
@click.argument("key")
def unset(key: str) -> None:
    """Take one value out of the document: the default counts again."""

    def change(document: Json) -> None:
        *path, last = key.split(".")
        place = _at(document, ".".join(path)) if path else document
        if not isinstance(place, dict) or last not in place:
            raise CommandError(f"{key} is not stored", FAILED)
        del place[last]

    click.echo(f"revision {_with_bus(lambda bus: _change(bus, change))}", err=True)


@config.command("edit")
def edit() -> None:
    """Change the stored document in your editor (VISUAL, EDITOR)."""
    before = _with_bus(load)
    text = click.edit(_pretty(before.content), extension=".json")
    if text is None:
        click.echo("unchanged", err=True)
        return
    _store(_document(text, "the edited text"), before.revision)


@config.command("apply")
@click.argument("file", type=click.File("r"))
@click.option("--base", type=int, metavar="REVISION", help="Refuse if the document changed since then.")
def apply(file: Any, base: int | None) -> None:
    """Replace the stored document by FILE (`-`: standard input)."""
    content = _document(file.read(), file.name)
    check(content)
    _store(content, _with_bus(load).revision if base is None else base)


@config.command("export")
def export() -> None:
    """Print the stored document, as `apply` reads it."""
    click.echo(_pretty(_with_bus(load).content), nl=False)


@config.command("history")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with the documents.")
def history(as_json: bool) -> None:
    """List the kept revisions, oldest first, with what each changed."""
    found = _with_bus(revisions)
    if as_json:
        click.echo(json.dumps([revision._asdict() for revision in found]))
        return
    before: Json = {}
    for revision in found:
        changed = ", ".join(_differences(before, revision.content)) or "nothing"
        click.echo(f"{revision.revision:6}  {revision.ts[:19]:19}  {changed}")
        before = revision.content


@config.command("rollback")
@click.argument("revision", type=int)
def rollback(revision: int) -> None:
    """Write the document of an earlier revision again, as a new one."""
    found = _with_bus(revisions)
    chosen = next((one for one in found if one.revision == revision), None)
    if chosen is None:
        known = ", ".join(str(one.revision) for one in found) or "none"
        raise CommandError(f"no revision {revision}; kept are {known}", USAGE)
    _store(chosen.content, found[-1].revision)


def _with_bus(action: Callable[[Bus], Awaitable[_T]]) -> _T:
    async def run() -> _T:
        async with connection(access_of(home_from_environment())) as bus:
            return await action(bus)

    return asyncio.run(run())


def _store(content: Json, base: int) -> None:
    click.echo(f"revision {_with_bus(lambda bus: save(bus, content, base))}", err=True)


async def _change(bus: Bus, change: Callable[[Json], None]) -> int:
    before: Revision = await load(bus)
    content = copy.deepcopy(before.content)
    change(content)
    return await save(bus, content, before.revision)


def _effective(content: Json) -> Json:
    built: Json = msgspec.to_builtins(check(content))
    return built


def _document(text: str, name: str) -> Json:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise CommandError(f"{name}: not JSON: {error}", USAGE) from error
    if not isinstance(content, dict):
        raise CommandError(f"{name}: must be a JSON object", USAGE)
    return content


def _pretty(content: Json) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _at(content: Json, key: str) -> Any:
    place: Any = content
    for token in key.split("."):
        if not isinstance(place, dict) or token not in place:
            raise CommandError(f"there is no {key!r} in the configuration", USAGE)
        place = place[token]
    return place


def _put(content: Json, key: str, value: object) -> None:
    *path, last = key.split(".")
    place = content
    for token in path:
        child = place.setdefault(token, {})
        if not isinstance(child, dict):
            raise CommandError(f"{key}: {token} is not a group of settings", USAGE)
        place = child
    place[last] = value


def _differences(before: Json, after: Json, prefix: str = "") -> list[str]:
    found = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if isinstance(old or {}, dict) and isinstance(new or {}, dict):
            found += _differences(old or {}, new or {}, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key}")
    return found
