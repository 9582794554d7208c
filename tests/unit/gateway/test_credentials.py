"""The auth file: what it accepts, what it refuses to be read from."""

import base64
import json
from pathlib import Path

import pytest

from fairlead_common.errors import InvalidInputError, UnsafeConfigurationError
from fairlead_common.service.credentials import AuthFile, ensure_auth_file


def test_first_start_makes_a_private_file_and_shows_the_token_once(tmp_path: Path) -> None:
    path = tmp_path / "home" / "auth.json"
    made, token = ensure_auth_file(path)
    assert token
    assert made.verify_token(token)
    assert path.stat().st_mode & 0o777 == 0o600
    assert token not in path.read_text()
    again, nothing = ensure_auth_file(path)
    assert nothing is None
    assert again.verify_token(token)
    assert [file.name for file in path.parent.iterdir()] == ["auth.json"]


def test_given_token_replaces_the_old_one_and_ends_its_logins(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    first, old = ensure_auth_file(path)
    assert old
    cookie = first.mint(["admin"], 60)
    second, nothing = ensure_auth_file(path, "a-token-of-my-own")
    assert nothing is None
    assert second.verify_token("a-token-of-my-own")
    assert not second.verify_token(old)
    assert second.verify_signed(cookie) is None
    third, _ = ensure_auth_file(path, "a-token-of-my-own")
    assert third.verify_signed(second.mint(["read"], 60)) is not None


@pytest.mark.parametrize("token", ["", "with spaces in the token", "fl1.xxxxxxxxxxxxxxxx"])
def test_weak_token_is_refused(tmp_path: Path, token: str) -> None:
    with pytest.raises(InvalidInputError, match="token"):
        ensure_auth_file(tmp_path / "auth.json", token)
    assert not (tmp_path / "auth.json").exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o606, 0o601])
def test_file_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "auth.json"
    ensure_auth_file(path)
    path.chmod(mode)
    with pytest.raises(UnsafeConfigurationError, match=f"0600, is {mode:04o}"):
        AuthFile.read(path)


def test_symbolic_link_is_refused(tmp_path: Path) -> None:
    ensure_auth_file(tmp_path / "real.json")
    (tmp_path / "auth.json").symlink_to(tmp_path / "real.json")
    with pytest.raises(UnsafeConfigurationError):
        ensure_auth_file(tmp_path / "auth.json")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "nonsense",
        '{"token_sha256": "", "signing_key": ""}',
        json.dumps({"token_sha256": "0" * 64, "signing_key": base64.b64encode(b"x" * 31).decode()}),
        json.dumps({"token_sha256": "0" * 63, "signing_key": base64.b64encode(b"x" * 32).decode()}),
        json.dumps({"token_sha256": "0" * 64, "signing_key": base64.b64encode(b"x" * 32).decode(), "a": 1}),
    ],
)
def test_malformed_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "auth.json"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(UnsafeConfigurationError):
        ensure_auth_file(path)


def test_signed_token_holds_until_it_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    auth, _ = ensure_auth_file(tmp_path / "auth.json")
    token = auth.mint(["read"], 60, user="ann")
    claims = auth.verify_signed(token)
    assert claims is not None
    assert (claims.user, claims.scopes) == ("ann", ["read"])
    monkeypatch.setattr("time.time", lambda: claims.expires_at + 0.0)
    assert auth.verify_signed(token) is None


def test_every_changed_character_breaks_the_signature(tmp_path: Path) -> None:
    auth, _ = ensure_auth_file(tmp_path / "auth.json")
    token = auth.mint(["read"], 60)
    for place in range(len(token) - 1):  # the last character of the MAC carries two unused bits
        changed = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        assert auth.verify_signed(changed) is None, place
    for odd in ("", "fl1.", "fl1..", "fl1.x.y", token + "é", token[:-1], "fl1." + "a" * 5000 + ".b"):
        assert auth.verify_signed(odd) is None


def test_login_code_opens_nothing_but_the_login(tmp_path: Path) -> None:
    auth, _ = ensure_auth_file(tmp_path / "auth.json")
    code = auth.login_code()
    assert auth.verify_signed(code) is None
    assert auth.verify_signed(code, use="login") is not None
    assert auth.verify_signed(auth.mint(["admin"], 60), use="login") is None


def test_token_with_strange_characters_is_only_wrong(tmp_path: Path) -> None:
    auth, _ = ensure_auth_file(tmp_path / "auth.json")
    for token in ("", "\x00", "\udc80", "é" * 1000):
        assert not auth.verify_token(token)
