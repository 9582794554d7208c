"""Packs the runner into one file that any Python 3.9 can run."""

import hashlib
import io
import os
import py_compile
import secrets
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

_SOURCES = Path(__file__).parent / "runner"
_MAIN = b"import sys\nfrom fairlead_tools.runner.__main__ import main\nsys.exit(main())\n"
_UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH  # the name has the hash of the sources


def pack_runner(directory: Path) -> Path:
    """`runner-<hash>.pyz` in `directory`; the same sources and Python give the same name, built once."""
    path = directory / f"runner-{_fingerprint()}.pyz"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = directory / f".{path.name}.{secrets.token_hex(4)}"
        temporary.write_bytes(_archive())
        os.replace(temporary, path)
    return path


def _fingerprint() -> str:
    digest = hashlib.sha256(str(sys.implementation.cache_tag).encode())
    for source in _sources():
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _archive() -> bytes:
    """Sources for any Python, and beside them bytecode for this one, which starts twice as fast."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive, TemporaryDirectory() as scratch:
        archive.writestr("__main__.py", _MAIN)
        archive.writestr("fairlead_tools/__init__.py", b"")
        for source in _sources():
            name = f"fairlead_tools/runner/{source.name}"
            compiled = Path(scratch) / "compiled"
            py_compile.compile(
                str(source), str(compiled), name, doraise=True, invalidation_mode=_UNCHECKED, optimize=0
            )
            archive.writestr(f"{name}c", compiled.read_bytes())
            archive.writestr(name, source.read_bytes())
    return out.getvalue()


def _sources() -> list[Path]:
    return sorted(_SOURCES.glob("*.py"))
