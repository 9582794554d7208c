"""Python sources as trees."""

import ast
import gc


def parsed(source: str, feature_version: tuple[int, int] | None = None) -> ast.Module:
    """The tree. A collection in the midst of parsing makes CPython 3.11 miscount its depth, and fail."""
    gc.disable()
    try:
        return ast.parse(source, feature_version=feature_version)
    finally:
        gc.enable()
