"""Output that is cut, counted and told in pieces."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead_tools.runner.process.output import MAX_TEXT_BYTES, Output


def output(limit: int = 1 << 40) -> Output:
    return Output(lambda: os.open(os.devnull, os.O_WRONLY), limit)


@given(st.lists(st.binary(max_size=3_000), max_size=60))
def test_text_never_exceeds_its_cap_and_small_output_is_whole(pieces: list[bytes]) -> None:
    made = output()
    for piece in pieces:
        made.feed(piece * 7)
    whole = b"".join(piece * 7 for piece in pieces)
    text, cut = made.text()
    assert cut == (
        len(whole) > MAX_TEXT_BYTES or whole.count(b"\n") + (not whole.endswith(b"\n")) * bool(whole) > 2_000
    )
    if not cut:
        assert text == whole.decode("utf-8", "replace")
    assert len(text) <= MAX_TEXT_BYTES + 100
    assert text.count("\n") <= 2_003
    made.close()


@given(st.text(alphabet="aé€😀\n", max_size=400), st.integers(1, 7))
def test_pieces_joined_are_the_text(text: str, size: int) -> None:
    made = output()
    data = text.encode()
    told = ""
    for start in range(0, len(data), size):
        made.feed(data[start : start + size])
        offset, piece = made.take_live()
        assert offset == len(told)
        told += piece
    assert told == text
    made.close()


def test_flood_between_two_looks_is_told_by_its_end() -> None:
    made = output()
    made.feed("é".encode() * 100_000 + b"end")
    offset, piece = made.take_live()
    assert piece.endswith("éend")
    assert "\ufffd" not in piece
    assert len(piece.encode()) <= 16_384
    assert offset >= 100_000
    made.feed(b"on")
    assert made.take_live() == (offset + len(piece), "on")
    made.close()


@pytest.mark.parametrize("cut", range(4))
def test_cut_does_not_split_a_character(cut: int) -> None:
    made = output()
    made.feed(b"x" * cut + "😀".encode() * 50_000)
    text, was_cut = made.text()
    assert was_cut
    assert "\ufffd" not in text
    made.close()


def test_file_keeps_no_more_than_its_limit_and_a_full_disk_costs_no_output(tmp_path: Path) -> None:
    path = tmp_path / "output"
    made = Output(lambda: os.open(path, os.O_WRONLY | os.O_CREAT), 10)
    made.feed(b"")
    assert not path.exists()  # who says nothing needs no file
    made.feed(b"0123456")
    made.feed(b"789abcdef")
    assert path.read_bytes() == b"0123456789"
    assert (made.total_bytes, made.stored_bytes) == (16, 10)
    made.close()
    full = Output(lambda: os.open("/dev/full", os.O_WRONLY))
    full.feed(b"said")
    assert full.text() == ("said", False)
    assert full.stored_bytes == 0
    full.close()
    none = Output(lambda: os.open(tmp_path / "missing" / "output", os.O_WRONLY | os.O_CREAT))
    none.feed(b"said")
    assert (none.text(), none.stored_bytes) == (("said", False), 0)
    none.close()
