"""How a service learns where NATS is."""

from pathlib import Path

import pytest

from fairlead_common.bus.settings import settings_from_environment
from fairlead_common.config import overrides_from_environment
from fairlead_common.errors import UnsafeConfigurationError


def test_the_password_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    environ = {"FAIRLEAD_NATS_USER": "tools", "FAIRLEAD_NATS_PASSWORD_FILE": str(tmp_path / "password")}
    settings = settings_from_environment(environ)
    assert (settings.user, settings.password) == ("tools", "secret")


def test_a_password_file_that_is_missing_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(UnsafeConfigurationError, match="FAIRLEAD_NATS_PASSWORD_FILE"):
        settings_from_environment({"FAIRLEAD_NATS_PASSWORD_FILE": str(tmp_path / "missing")})


@pytest.mark.parametrize(
    ("environ", "overrides"),
    [
        ({"FAIRLEAD_MODEL": "", "FAIRLEAD_OVERRIDES": ""}, {}),
        ({"FAIRLEAD_MODEL": "openai/x"}, {"models.default": "openai/x"}),
        (
            {"FAIRLEAD_MODEL": "openai/x", "FAIRLEAD_OVERRIDES": '{"a": 1}'},
            {"models.default": "openai/x", "a": 1},
        ),
        (
            {"FAIRLEAD_MODEL": "openai/x", "FAIRLEAD_OVERRIDES": '{"models.default": "demo"}'},
            {"models.default": "demo"},
        ),
    ],
)
def test_the_model_of_this_start_goes_before_what_is_stored(
    environ: dict[str, str], overrides: dict[str, object]
) -> None:
    assert overrides_from_environment(environ) == overrides
