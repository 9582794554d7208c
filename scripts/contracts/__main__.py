"""Writes the generated contracts into the repository."""

import sys

from scripts.contracts.files import ROOT, contracts


def main() -> None:
    """Write each file whose content is out of date, and name it."""
    for path, text in contracts().items():
        file = ROOT / path
        if file.exists() and file.read_text("utf-8") == text:
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
        sys.stdout.write(f"written: {path}\n")


if __name__ == "__main__":
    main()
