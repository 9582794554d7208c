"""How many tokens a text has, as models of OpenAI count (o200k_base); others differ by some per cent."""

import functools
import importlib.util
import os
from pathlib import Path

import tiktoken


@functools.cache
def _encoding() -> tiktoken.Encoding:
    # litellm brings the file that tiktoken would download.
    found = importlib.util.find_spec("litellm")
    assert found is not None
    assert found.origin is not None
    folder = Path(found.origin).parent / "litellm_core_utils" / "tokenizers"
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
    try:
        return tiktoken.get_encoding("o200k_base")
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before


def tokens(text: str) -> int:
    """Of the text."""
    return len(_encoding().encode(text))
