"""What a gateway is told by its environment."""

from pathlib import Path

import pytest

from fairlead_common.errors import InvalidInputError, UnsafeConfigurationError
from fairlead_gateway.http.server import public_host_from_environment
from fairlead_gateway.main import auth_file


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("", ""),
        ("https://fairlead.tail1.ts.net", "fairlead.tail1.ts.net"),
        ("https://Fairlead.tail1.ts.net/", "fairlead.tail1.ts.net"),
        ("https://fairlead.tail1.ts.net:443", "fairlead.tail1.ts.net"),
        ("https://fairlead.tail1.ts.net:8443", "fairlead.tail1.ts.net:8443"),
    ],
)
def test_public_name_is_read_from_its_address(url: str, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_PUBLIC_URL", url)
    assert public_host_from_environment() == host


@pytest.mark.parametrize(
    "url", ["fairlead.ts.net", "http://a.ts.net", "https://", "https://a/b", "https://u@a"]
)
def test_public_address_without_tls_or_with_more_than_a_host_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_PUBLIC_URL", url)
    with pytest.raises(InvalidInputError, match="FAIRLEAD_PUBLIC_URL"):
        public_host_from_environment()


def test_the_token_in_a_file_is_the_admin_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FAIRLEAD_AUTH_FILE", raising=False)
    monkeypatch.setenv("FAIRLEAD_TOKEN", "another-token-of-the-environment")
    (tmp_path / "token").write_text("a-token-in-a-file-of-its-own\n")
    monkeypatch.setenv("FAIRLEAD_TOKEN_FILE", str(tmp_path / "token"))
    file = auth_file()
    assert file.verify_token("a-token-in-a-file-of-its-own")
    assert not file.verify_token("another-token-of-the-environment")


def test_a_token_file_that_is_missing_refuses_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRLEAD_HOME", str(tmp_path))
    monkeypatch.setenv("FAIRLEAD_TOKEN_FILE", str(tmp_path / "missing"))
    with pytest.raises(UnsafeConfigurationError, match="FAIRLEAD_TOKEN_FILE"):
        auth_file()
