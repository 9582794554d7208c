"""Stored credentials: whether the agent service can open them, and what their last tests found."""

from fairlead_node.doctor.context import DoctorContext
from fairlead_node.doctor.finding import Finding, ok, problem, skipped, warning

_NAME = "models.credentials"


def stored(look: DoctorContext) -> list[Finding]:
    """One finding for each credential that does not work, else one for all."""
    known = look.facts().credentials
    if known is None:
        return [skipped(_NAME, "the agent service, which alone can tell, does not answer")]
    found = []
    for each in known:
        name, recipient = str(each.get("name")), str(each.get("recipient"))
        again = f"`fairlead credentials rotate {name}{'' if recipient == 'agent' else f' --for {recipient}'}`"
        check = each.get("check") or {}
        if not each.get("readable", True):
            text = f"{name}: {recipient} has another key now and cannot open it"
            found.append(problem(_NAME, text, f"set its value again: {again}"))
        elif check.get("state") == "problem":
            text = f"{name}: its last test failed: {check.get('text', '')}"
            found.append(warning(_NAME, text, f"`fairlead credentials test {name}`, or {again}"))
    if found:
        return found
    return [ok(_NAME, f"{len(known)} stored") if known else skipped(_NAME, "none is stored")]
