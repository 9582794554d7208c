"""`fairlead models`."""

import json

import msgspec
import pytest
from click.testing import CliRunner

from fairlead.commands.models import models
from fairlead_common.protocol.known_models import KnownModel, KnownModels, KnownProvider
from tests.unit.cli.fake_gateway import fake_gateway

FOUND = KnownModels(
    models=[
        KnownModel(
            name="anthropic/claude-sonnet-4-5",
            provider="anthropic",
            context_window=200_000,
            max_output_tokens=64_000,
            input_usd_per_mtok=3,
            output_usd_per_mtok=15,
            vision=True,
            thinking=True,
            sources={"context_window": "table"},
            used_by=["default", "main"],
        ),
        KnownModel(name="gpu/mine", provider="gpu", vision=False, sources={"vision": "configuration"}),
        KnownModel(name="gpu/other", provider="gpu", listed=True),
    ],
    providers=[
        KnownProvider(name="gpu", kind="openai"),
        KnownProvider(name="x", kind="openai", problem="HTTP 500"),
    ],
    left_out=2,
)


def test_models_are_shown_with_what_is_unknown_and_what_was_not_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAIRLEAD_TOKEN", "test")
    answer = msgspec.json.decode(msgspec.json.encode(FOUND))
    with fake_gateway() as gateway:
        gateway.answers = {"GET /api/models": [(200, answer)]}
        shown = CliRunner().invoke(models, ["--url", gateway.url])
        everything = CliRunner().invoke(models, ["--all", "--url", gateway.url])
        as_json = CliRunner().invoke(models, ["--json", "--url", gateway.url])
    assert shown.exit_code == 0, shown.output
    head, claude, mine = [line.split() for line in shown.stdout.splitlines()]
    assert head[:3] == ["MODEL", "WINDOW", "OUTPUT"]
    assert claude == [
        *("anthropic/claude-sonnet-4-5", "200,000", "64,000", "3", "15", "yes", "yes", "default,", "main"),
    ]
    assert mine == ["gpu/mine", "?", "?", "?", "?", "no", "?", "-"]
    assert shown.stderr.splitlines() == [
        "x: no list of models: HTTP 500",
        "3 more are listed by providers: --all",
    ]
    assert "gpu/other" in everything.stdout
    assert "2 more are listed by providers" in everything.stderr
    assert json.loads(as_json.stdout) == answer
