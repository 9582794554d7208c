"""Lists of the command line: one head, aligned columns, one sentence for no rows."""

import re
from pathlib import Path

import pytest

from fairlead.table import TableRow, shortened, show_table, table_lines

COMMANDS = Path(__file__).parents[3] / "libs/cli/src/fairlead/commands"


def test_columns_are_aligned_by_what_a_terminal_shows() -> None:
    rows = [TableRow(["東京", 7, ""]), TableRow(["a\x1b[31m", 12, "two\nlines"], ["! it\x07 failed"])]
    assert table_lines(("name", "count", "note"), rows, numbers=("count",)) == [
        "NAME       COUNT  NOTE",
        "東京           7  -",
        "a\\x1b[31m     12  two lines",
        "  ! it\\x07 failed",
    ]


def test_a_list_without_rows_is_a_sentence_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(("name",), [], empty="no things")
    assert capsys.readouterr() == ("", "no things\n")
    show_table(("name",), [("x",)], empty="no things")
    assert capsys.readouterr() == ("NAME\nx\n", "")


def test_long_texts_are_cut_to_one_line() -> None:
    assert shortened("a  b\nc", 5) == "a b c"
    assert shortened("abcdef", 5) == "abcd…"


def test_all_lists_are_tables() -> None:
    lists = re.compile(
        r'@[a-z_]+\.command\((?:"(?:ls|list)")?\)\n(?:@.*\n)*def (?:ls|list\w*|listing|show)\('
    )
    with_lists = {path.name for path in COMMANDS.glob("*.py") if lists.search(path.read_text())}
    assert len(with_lists) >= 10
    untidy = {name for name in with_lists if "show_table(" not in (COMMANDS / name).read_text()}
    assert not untidy
