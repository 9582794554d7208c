"""Commands and addresses are shown without the secrets in them."""

import pytest

from fairlead_common.service.command_secrets import HIDDEN, secrets_in, without_secrets


@pytest.mark.parametrize(
    ("command", "shown", "secrets"),
    [
        ("npx -y server", "npx -y server", []),
        ("server --api-key=abc1 --port=80", "server --api-key=*** --port=80", ["abc1"]),
        ("server --api-key abc1 --port 80", "server --api-key *** --port 80", ["abc1"]),
        ("server --token -v abc1", "server --token -v abc1", []),
        ("server -apiKey=abc1 --accessToken abc2", "server -apiKey=*** --accessToken ***", ["abc1", "abc2"]),
        ("server --key-file=/k --token-url https://a/b", "server --key-file=/k --token-url https://a/b", []),
        (
            "docker run -e GITHUB_TOKEN=abc1 -e MODE=x img",
            "docker run -e GITHUB_TOKEN=*** -e MODE=x img",
            ["abc1"],
        ),
        ("docker run --env=DB_PASSWORD=a=b= img", "docker run --env=DB_PASSWORD=*** img", ["a=b="]),
        ("server https://ann:pw@host/mcp", "server https://***@host/mcp", ["ann:pw"]),
        ("https://abc1@host:8/mcp?a=1", "https://***@host:8/mcp?a=1", ["abc1"]),
        (
            "https://host/mcp?key=k1&a=1&access_token=k2",
            "https://host/mcp?key=***&a=1&access_token=***",
            ["k1", "k2"],
        ),
        ("https://host/mcp?keyboard=us&page=2#top", "https://host/mcp?keyboard=us&page=2#top", []),
        ("--url=https://u:p@host/?api_key=k", "--url=https://***@host/?api_key=***", ["u:p", "k"]),
        ("postgresql://u:p@db/x", "postgresql://***@db/x", ["u:p"]),
        ("ssh me@host --token=", "ssh me@host --token=", []),
        ("", "", []),
    ],
)
def test_secrets_are_hidden_and_all_else_is_shown(command: str, shown: str, secrets: list[str]) -> None:
    assert " ".join(without_secrets(command.split(" "))) == shown
    assert secrets_in(command.split(" ")) == secrets


@pytest.mark.parametrize(
    "header", ["Authorization: Bearer abc1", "X-Api-Key:abc1", "Cookie: a=abc1", "authorization:abc1"]
)
def test_headers_as_arguments_are_hidden(header: str) -> None:
    (_, shown) = without_secrets(["--header", header])
    assert shown.startswith(header.partition(":")[0])
    assert shown.endswith(HIDDEN)
    assert "abc1" not in shown
    assert without_secrets([f"--header={header}"]) == [f"--header={shown}"]


def test_headers_that_are_no_secret_are_shown() -> None:
    words = ["--header", "Accept: text/html", "-H", "Host: a", "key://x", "C:\\path"]
    assert without_secrets(words) == words
