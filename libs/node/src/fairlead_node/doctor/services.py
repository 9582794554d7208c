"""The services and executors that answer: which there are, of which version, and what they warn of."""

from collections import Counter
from importlib.metadata import version as version_of
from typing import Final

import msgspec

from fairlead_common.protocol.messages import ExecutorInfo
from fairlead_node.doctor.context import DoctorContext
from fairlead_node.doctor.finding import Finding, ok, problem, skipped, warning
from fairlead_node.supervisor.environment import SERVICES

_MUST: Final = frozenset({"gateway", "agent", "tools"})


def services(look: DoctorContext) -> list[Finding]:
    """Which services answer over NATS, and whether they are of one version."""
    facts = look.facts()
    if facts.services is None:
        return [skipped("services.running", "no server to check")]
    running = Counter(str(each["name"]).removeprefix("fairlead-") for each in facts.services)
    if not running:
        return [warning("services.running", "no service answers", "`fairlead up` starts them")]
    text = ", ".join(f"{name}{f' x{running[name]}' if running[name] > 1 else ''}" for name in sorted(running))
    missing = [name for name in SERVICES if not running[name]]
    findings = []
    if missing:
        kind = problem if _MUST & set(missing) else warning
        findings.append(
            kind(
                "services.running",
                f"no {', no '.join(missing)} answers; there are {text}",
                "see `fairlead logs`",
            )
        )
    else:
        findings.append(ok("services.running", text))
    own = version_of("fairlead")
    other = {
        f"{str(each['name']).removeprefix('fairlead-')} {each.get('version')}"
        for each in facts.services
        if each.get("version") != own
    }
    if other:
        findings.append(
            warning(
                "services.versions",
                f"this command is {own}, but {', '.join(sorted(other))} runs",
                "restart what is older (`fairlead service restart`, `docker compose up -d`)",
            )
        )
    else:
        findings.append(ok("services.versions", f"all {own}"))
    return [*findings, *_revisions(look)]


def _revisions(look: DoctorContext) -> list[Finding]:
    """Whether all containers were made of one state of the sources; nothing where there are no images."""
    found: dict[str, set[str]] = {}
    for each in look.facts().services or []:
        if revision := (each.get("metadata") or {}).get("revision"):
            found.setdefault(str(revision), set()).add(str(each["name"]).removeprefix("fairlead-"))
    if not found:
        return []
    if len(found) == 1:
        return [ok("services.revisions", f"all of {next(iter(found))}")]
    text = "; ".join(f"{revision}: {', '.join(sorted(names))}" for revision, names in sorted(found.items()))
    advice = "are all profiles in .env? then `make images && docker compose up -d --wait`"
    return [warning("services.revisions", f"images of different revisions ({text})", advice)]


def executors(look: DoctorContext) -> list[Finding]:
    """Heartbeats of executors, by host."""
    facts = look.facts()
    if facts.executors is None:
        return [skipped("services.executors", "no server to check")]
    if not facts.executors:
        if not facts.services:
            return [skipped("services.executors", "nothing runs")]
        return [
            problem("services.executors", "no executor has a fresh heartbeat", "see `fairlead logs tools`")
        ]
    hosts = Counter(str(each.get("host")) for each in facts.executors)
    draining = [each for each in facts.executors if each.get("draining")]
    text = ", ".join(f"{host}{f' x{count}' if count > 1 else ''}" for host, count in sorted(hosts.items()))
    findings = []
    if len(draining) == len(facts.executors):
        findings.append(
            problem("services.executors", f"all executors drain ({text}): no new call is taken", "start one")
        )
    else:
        told = f"{text}{f', {len(draining)} drain' if draining else ''}"
        findings.append(ok("services.executors", told))
    findings += [
        warning("services.executor-warnings", f"{each.get('host')}: {line}", "see `fairlead status`")
        for each in facts.executors
        for line in each.get("warnings") or []
    ]
    findings += _placement(look)
    return findings


def _placement(look: DoctorContext) -> list[Finding]:
    """Agents that ask for a pool, labels or a sandbox that no executor has, or their host has not."""
    from fairlead_node.agents.places import HostsHeard
    from fairlead_node.agents.places import problem as problem_of

    facts = look.facts()
    beats = [each for each in facts.executors or [] if not each.get("draining")]
    known = HostsHeard(msgspec.convert(beats, list[ExecutorInfo]), facts.places)
    findings = []
    for name, profile in look.config_or_defaults().agents.items():
        text, advice = problem_of(name, profile, known)
        if text:
            findings.append(problem("services.placement", text, advice))
    return findings
