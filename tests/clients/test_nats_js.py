"""nats.js with its default inbox."""

import json

from tests.clients.stack import AGENT, Stack

USER = "jsdesk"


def test_default_inboxes_prompt_once_and_hear_every_answer(stack: Stack) -> None:
    added = stack.up.cli("nats", "user", "add", USER, "--session", AGENT, "--agents", "--context")
    assert added.returncode == 0, added.stderr
    context = json.loads(added.stdout)
    mail, agent = stack.ledger("nats-js-mail"), stack.ledger("nats-js-agent")
    texts = [
        f'op=NATSJS{n} steps=1 run="echo ran >> {ledger}" answer="all is well"'
        for n, ledger in enumerate((mail, agent))
    ]
    found = stack.run_javascript(
        "nats_default_inbox.mjs", context["url"], context["nkey"], USER, *texts, timeout_s=120
    )
    assert [ack["stream"] for ack in found["acks"]] == ["SESSIONS"] * 2
    assert [(each["outcome"], each["text"].strip()) for each in found["answers"]] == [
        ("completed", "all is well")
    ] * 2
    assert [each["outcome"] for each in found["refused"]] == ["dropped"]
    assert found["refused"][0]["error"]
    assert found["texts"] == ["all is well"] * 2
    assert found["queue"] == "agents"
    assert found["problems"] == []
    assert mail.read_text() == agent.read_text() == "ran\n"
