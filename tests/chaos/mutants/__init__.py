"""Deliberate faults, applied to a copy of the source: they prove that the oracle sees a broken promise.

One `<name>.patch` is one mutant: a line that tells what it breaks, then hunks.

    tools: a call is started although its claim was taken by another one
    @@ fairlead_tools
    -        there = await self._write(call, claim)
    +        there = claim

`@@` names an import package. Below it, as in a unified diff, lines with `-` and with a blank are the text
that must be there, in a row; lines with `-` go and lines with `+` come. There are no line numbers and no file
name: the text must occur exactly once in the package, at any depth of indentation, so that code may move as
long as the statement stays.
"""

import ast
import os
import shutil
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
NAMES = frozenset(path.stem for path in FOLDER.glob("*.patch"))


class MutantError(Exception):
    """A mutant is unknown, is written wrongly, or no longer fits the source."""


class Hunk(NamedTuple):
    """One replacement: where `before` is, in any file of `package`, `after` comes."""

    package: str
    before: tuple[str, ...]
    after: tuple[str, ...]


class Mutant(NamedTuple):
    """A patch as it was read. `breaks`: the guarantee, for people."""

    name: str
    breaks: str
    hunks: tuple[Hunk, ...]


def read(name: str) -> Mutant:
    """The mutant of that name.

    Raises:
        MutantError: there is none, or its file is not a patch.
    """
    if name not in NAMES:
        raise MutantError(f"no mutant {name!r}; there are {', '.join(sorted(NAMES))}")
    head, *lines = (FOLDER / f"{name}.patch").read_text().splitlines()
    hunks: list[Hunk] = []
    for number, line in enumerate(lines, 2):
        if line.startswith("@@ "):
            hunks.append(Hunk(line[3:].strip(), (), ()))
        elif not hunks or line[:1] not in ("", " ", "-", "+"):
            raise MutantError(f"{name}.patch:{number}: expected '@@ package', ' ', '-' or '+', got {line!r}")
        else:
            package, before, after = hunks[-1]
            kept = () if line[:1] == "+" else (line[1:],)
            made = () if line[:1] == "-" else (line[1:],)
            hunks[-1] = Hunk(package, before + kept, after + made)
    if not hunks or any(not hunk.before or hunk.before == hunk.after for hunk in hunks):
        raise MutantError(f"{name}.patch: each mutant needs hunks that find something and change it")
    return Mutant(name, head, tuple(hunks))


def mutated(names: Iterable[str], into: Path) -> list[Path]:
    """Copy the packages that the mutants change to `into` and change them there; the changed files.

    A Python process with `into` first on its path then runs them instead of what is installed.

    Raises:
        MutantError: a mutant is unknown, a text of it is not exactly once in its package, or what
            comes of it is not Python.
    """
    mutants = [read(name) for name in names]
    shutil.rmtree(into, ignore_errors=True)
    for package in {hunk.package for mutant in mutants for hunk in mutant.hunks}:
        shutil.copytree(_source(package), into / package, ignore=shutil.ignore_patterns("__pycache__"))
    changed = [_apply(mutant.name, hunk, into) for mutant in mutants for hunk in mutant.hunks]
    for path in changed:
        try:
            ast.parse(path.read_text())
        except SyntaxError as error:
            raise MutantError(f"{path.relative_to(into)}: {error}") from None
    return list(dict.fromkeys(changed))


def environment(names: str, folder: Path) -> dict[str, str]:
    """Variables with which Python runs the mutants (names with commas between them); none without names."""
    wanted = [name for name in names.split(",") if name]
    if not wanted:
        return {}
    into = (folder / "mutated").absolute()
    mutated(wanted, into)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(into), os.environ.get("PYTHONPATH"))))}


def _source(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise MutantError(f"there is no package {package!r}")
    return Path(spec.submodule_search_locations[0])


def _apply(name: str, hunk: Hunk, root: Path) -> Path:
    found = [
        (path, place)
        for path in sorted((root / hunk.package).rglob("*.py"))
        for place in _places(path.read_text().splitlines(), hunk.before)
    ]
    if len(found) != 1:
        where = "".join(f"\n  {path.relative_to(root)}:{start + 1}" for path, (start, _) in found)
        text = "\n".join(hunk.before)
        raise MutantError(
            f"{name}.patch no longer fits {hunk.package}: this text must be there once, but is there "
            f"{len(found)} times{where}\n{text}\n"
            "If the code was rewritten, write the patch anew: it must break the same guarantee."
        )
    path, (start, indent) = found[0]
    lines = path.read_text().splitlines()
    own = _indent(hunk.before)
    lines[start : start + len(hunk.before)] = [
        indent + line[len(own) :] if line else "" for line in hunk.after
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def _places(lines: Sequence[str], before: Sequence[str]) -> list[tuple[int, str]]:
    """Where the text begins, and how deep it is indented there."""
    wanted = _flush(before)
    found = []
    for start in range(len(lines) - len(before) + 1):
        part = lines[start : start + len(before)]
        if part[0].strip() == before[0].strip() and _flush(part) == wanted:
            found.append((start, _indent(part)))
    return found


def _flush(lines: Sequence[str]) -> list[str]:
    own = len(_indent(lines))
    return [line[own:].rstrip() for line in lines]


def _indent(lines: Sequence[str]) -> str:
    """What all lines that are not empty begin with."""
    filled = [line for line in lines if line.strip()]
    return min((line[: len(line) - len(line.lstrip())] for line in filled), key=len, default="")
