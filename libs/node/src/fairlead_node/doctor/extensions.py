"""The extensions that the configuration names."""

from fairlead_common.service.extensions import ExtensionError, configured, load
from fairlead_node.doctor.context import DoctorContext
from fairlead_node.doctor.finding import Finding, ok, problem


def installed(look: DoctorContext) -> list[Finding]:
    """Each extension of the configuration: whether it can be loaded here."""
    findings = []
    for group, name in configured(look.config_or_defaults()):
        try:
            load(group, name)
        except ExtensionError as error:
            advice = f"install its package beside Fairlead, or take {name!r} out of the configuration"
            findings.append(problem("extensions.installed", str(error), advice))
        else:
            findings.append(ok("extensions.installed", f"{name} ({group})"))
    return findings or [ok("extensions.installed", "none is configured")]
