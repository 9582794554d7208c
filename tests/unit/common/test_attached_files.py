"""Names of attached files: plain, different from each other, and nowhere else than in their folder."""

import pytest

from fairlead_common.bus.attached_files import MAX_NAME_BYTES, file_names
from fairlead_common.protocol.messages import Attachment


def names(*given: str, media_type: str = "application/pdf") -> list[str]:
    return file_names([Attachment(object="o", name=name, media_type=media_type) for name in given])


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("report.pdf", "report.pdf"),
        ("Übersicht 2024 (final).pdf", "Übersicht_2024_final_.pdf"),
        ("報告.docx", "報告.docx"),
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\a b.txt", "a_b.txt"),
        (".envrc", "envrc"),
        ("--help", "help"),
        ("a\n]\u202eb.txt", "a_b.txt"),
        ("", "file.pdf"),
        ("..", "file.pdf"),
        ("\ud800", "file.pdf"),
        ("archive.tar.gz", "archive.tar.gz"),
        ("trailing. ", "trailing"),
    ],
)
def test_a_name_is_what_a_person_recognises_and_a_shell_does_not_mind(given: str, name: str) -> None:
    assert names(given) == [name]


def test_a_long_name_is_cut_and_keeps_its_extension() -> None:
    (name,) = names("長" * 300 + ".pdf")
    assert name.endswith("長.pdf")
    assert len(name.encode()) <= MAX_NAME_BYTES


def test_names_are_different_also_where_case_does_not_count() -> None:
    assert names("a.txt", "A.TXT", "x/a.txt", "input.txt") == ["a.txt", "A-2.TXT", "a-3.txt", "input-2.txt"]


def test_a_file_without_a_name_or_a_known_type_is_just_a_file() -> None:
    assert names("", media_type="x/unheard-of") == ["file"]
