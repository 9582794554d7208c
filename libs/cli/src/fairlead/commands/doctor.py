"""`fairlead doctor`."""

import json

import click

_MARKS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.option("--url", help="Another server (default: FAIRLEAD_URL, else this machine).")
def doctor(as_json: bool, url: str | None) -> None:
    """Check this machine and this home, and say what to do.

    Ends with status 1 if something fails; a warning is no failure.
    """
    from fairlead.checkup import all_findings

    findings = all_findings(url)
    failed = [finding for finding in findings if finding.state == "fail"]
    if as_json:
        rows = [finding._asdict() for finding in findings]
        click.echo(json.dumps({"ok": not failed, "checks": rows}))
    else:
        for finding in findings:
            click.echo(f"{_MARKS[finding.state]} {finding.name:12} {finding.text}")
            if finding.advice:
                click.echo(f"     {'':12} {finding.advice}")
    raise SystemExit(1 if failed else 0)
