"""Write the table of models anew from litellm's list of prices: `python -m scripts.models_table`.

Only what Fairlead's own back ends can call is taken over: litellm's own models are looked up in its list.
"""

import csv
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

TABLE: Final = Path(__file__).parents[1] / "services/agent/src/fairlead_agent/models/models.csv"
VENDORS: Final = (
    "anthropic", "cerebras", "dashscope", "deepseek", "gemini", "groq", "minimax", "mistral", "moonshot",
    "openai", "xai", "zai",
)  # fmt: skip
COLUMNS: Final = (
    "vendor", "model", "input_tokens", "output_tokens", "input", "output", "cached", "written", "tiers",
    "features",
)  # fmt: skip
_NO_CHAT: Final = (
    "audio", "realtime", "tts", "transcribe", "lyria", "robotics", "deep-research", "search-", "guard",
    "embedding", "live-", "image", "computer-use",
)  # fmt: skip
_PRICES: Final = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
)
_TIER: Final = "_above_"
_FEATURES: Final = {
    "supports_vision": "vision",
    "supports_reasoning": "thinking",
    "supports_adaptive_thinking": "adaptive",
    "supports_none_reasoning_effort": "none",
    "supports_minimal_reasoning_effort": "minimal",
    "supports_xhigh_reasoning_effort": "xhigh",
    "supports_max_reasoning_effort": "max",
    "supports_prompt_caching": "caching",
    "thinking_always_on": "always",
}


def _per_million(row: Mapping[str, Any], name: str) -> str:
    price = row.get(name)
    return "" if price is None else f"{float(price) * 1e6:.6f}".rstrip("0").rstrip(".")


def _tiers(row: Mapping[str, Any]) -> str:
    """`<tokens>:<input>:<output>:<cached>:<written>` of each price that counts from a size of request on."""
    sizes = {
        int(name.split(_TIER)[1].removesuffix("k_tokens")) * 1000
        for name in row
        if name.startswith("input_cost_per_token_above_") and name.endswith("k_tokens")
    }
    return " ".join(
        ":".join(
            [str(size), *(_per_million(row, f"{name}_above_{size // 1000}k_tokens") for name in _PRICES)]
        )
        for size in sorted(sizes)
    )


def _features(row: Mapping[str, Any]) -> str:
    found = [word for name, word in _FEATURES.items() if row.get(name)]
    endpoints = row.get("supported_endpoints") or []
    if row.get("mode") == "responses" or (
        "/v1/responses" in endpoints and "/v1/chat/completions" not in endpoints
    ):
        found.append("responses")
    return " ".join(found)


def rows(document: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """One row for each chat model of the vendors, sorted by vendor and name."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for key, row in document.items():
        vendor = row.get("litellm_provider") if isinstance(row, dict) else None
        if vendor not in VENDORS or row.get("mode") not in ("chat", "responses"):
            continue
        model = key.removeprefix(f"{vendor}/")
        if key.startswith("ft:") or any(word in model for word in _NO_CHAT):
            continue
        prices = [_per_million(row, name) for name in _PRICES]
        limits = [str(row.get("max_input_tokens") or ""), str(row.get("max_output_tokens") or "")]
        found[vendor, model] = (vendor, model, *limits, *prices, _tiers(row), _features(row))
    return [found[each] for each in sorted(found)]


def main() -> None:
    """Write the table."""
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("litellm is not installed: `make setup`")
    source = Path(spec.submodule_search_locations[0]) / "model_prices_and_context_window_backup.json"
    with TABLE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows(json.loads(source.read_text())))


if __name__ == "__main__":
    main()
