"""Jobs and runs as lines for people."""

from datetime import datetime
from typing import Any

from fairlead.printable import printable


def job_line(job: dict[str, Any]) -> str:
    """Id, next run, last status, schedule and name."""
    state = job.get("state") or {}
    following = when(state.get("nextRunAtMs")) if job.get("enabled", True) else "disabled"
    if state.get("suspended"):
        following = "suspended"
    last = state.get("lastStatus") or "-"
    target = job.get("sessionTarget", "main")
    schedule = schedule_text(job.get("schedule") or {})
    return (
        f"{job['id']:26}  {following:16}  {last:7}  {target:8}  {schedule:28}  "
        f"{printable(str(job.get('name', '')))}"
    )


def schedule_text(schedule: dict[str, Any]) -> str:
    """The schedule as one would type it."""
    match schedule.get("kind"):
        case "at":
            return f"at {when(schedule.get('atMs'))}"
        case "every":
            return f"every {span(int(schedule.get('everyMs') or 0))}"
        case "cron":
            zone = f" ({schedule['tz']})" if schedule.get("tz") else ""
            return f"{schedule.get('expr')}{zone}"
        case _:
            return "-"


def preview_lines(preview: dict[str, Any]) -> list[str]:
    """What was understood, and the next firings."""
    if not preview:
        return []
    lines = [f"    {preview['words']}"]
    lines += [f"    next: {text}" for text in preview.get("local", [])]
    lines += [f"    note: {text}" for text in preview.get("warnings", [])]
    return lines


def run_line(entry: dict[str, Any]) -> str:
    """When, how it went, how long, what came of it."""
    took = entry.get("durationMs")
    words = printable(" ".join(str(entry.get("error") or entry.get("summary") or "").split()))
    delivery = entry.get("delivery") or {}
    sent = f"  [{delivery['channel']}: {delivery.get('status', 'pending')}]" if delivery else ""
    return (
        f"{when(entry.get('firedAtMs') or entry.get('dueAtMs'))}  {entry['status']:8}  "
        f"attempt {entry.get('attempt', 0)}  {f'{took / 1000:.1f} s' if took is not None else '-':>8}  "
        f"{words[:100]}{sent}"
    )


def status_lines(status: dict[str, Any]) -> list[str]:
    """Whether jobs fire, and what comes next."""
    state = "disabled" if not status.get("enabled") else "paused" if status.get("paused") else "enabled"
    lines = [
        f"cron {state}; {status['enabledJobs']} of {status['jobs']} jobs enabled; "
        f"{status['running']} running, {status['queued']} queued, "
        f"at most {status['maxConcurrentRuns']} at once"
    ]
    if status.get("nextRunAtMs"):
        lines.append(f"next: {when(status['nextRunAtMs'])} ({status.get('nextJobId')})")
    if status.get("pendingDeliveries"):
        lines.append(f"{status['pendingDeliveries']} answers wait to be delivered")
    lines.append(f"leader: {status.get('leader') or 'none'}")
    return lines


def when(ms: Any) -> str:
    """Local time to the minute; a dash for none."""
    if not ms:
        return "-"
    return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M")


def span(ms: int) -> str:
    """A duration in its largest whole unit."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"
