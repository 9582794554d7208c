"""The text of a Word document's main part."""

from __future__ import annotations

from xml.parsers import expat

from fairlead_tools.runner.confinement.workspace_root import ToolFailedError

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main "
_STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main "


class _Reader:
    """Takes what the parser finds: paragraphs, headings, list items, rows and cells of tables."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._text: list[str] = []
        self._cells: list[list[str]] = []
        self._mark = ""
        self._takes = False
        self._deleted = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _name(tag)
        value = next((attributes[key] for key in attributes if _name(key) == "val"), "")
        if name == "t":
            self._takes = True
        elif name == "tab":
            self._text.append("\t")
        elif name in ("br", "cr"):
            self._text.append("\n")
        elif name == "pStyle" and value[-1:].isdigit() and value.lower().startswith("heading"):
            self._mark = "#" * min(6, int(value[-1])) + " "
        elif name == "numPr":
            self._mark = self._mark or "- "
        elif name == "tr":
            self._cells.append([])
        elif name in ("del", "delText", "instrText"):
            self._deleted += 1

    def end(self, tag: str) -> None:
        name = _name(tag)
        if name == "t":
            self._takes = False
        elif name in ("del", "delText", "instrText"):
            self._deleted -= 1
        elif name == "p":
            line = self._mark + "".join(self._text)
            self._text, self._mark = [], ""
            if self._cells:
                self._cells[-1].append(line)
            else:
                self.lines.append(line)
        elif name == "tc" and self._cells:
            self._cells[-1].append("\0")
        elif name == "tr" and self._cells:
            cells = "\n".join(self._cells.pop()).split("\0")
            row = " | ".join(" ".join(cell.split()) for cell in cells[:-1])
            if self._cells:
                self._cells[-1].append(row)
            else:
                self.lines.append(f"| {row} |")

    def text(self, data: str) -> None:
        if self._takes and not self._deleted:
            self._text.append(data)


def _name(tag: str) -> str:
    for space in (_W, _STRICT):
        if tag.startswith(space):
            return tag[len(space) :]
    return ""


def document_text(path: str, data: bytes) -> str:
    """One line for a paragraph, `#` before headings, `-` before list items, `|` between cells.

    Raises:
        ToolFailedError: it is no XML, or declares entities, which such documents never do.
    """
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text

    def refuse(*_: object) -> int:
        raise ToolFailedError(f"{path}: declares a document type or entities, which is refused")

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ToolFailedError(f"{path}: its text is broken: {error}") from None
    return "\n".join(reader.lines)
