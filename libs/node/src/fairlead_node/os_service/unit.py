"""The systemd unit of a service, as text."""

from typing import Final

from fairlead_common.installation.errors import CONFIG, USAGE, CommandError
from fairlead_node.os_service.spec import ServiceSpec
from fairlead_node.supervisor.supervisor import DRAIN_S, SERVER_STOP_S

MARK: Final = "# Written by `fairlead service install`, which replaces it."
SUBGROUPS_SINCE: Final = 254  # systemd that knows DelegateSubgroup=
# What `up` and an executor take at most to hand over, and as much again.
STOP_S: Final = int(2 * (DRAIN_S + SERVER_STOP_S + 5))

_UNIT: Final = """\
{mark}
# Own settings belong into a file of their own: {edit}
[Unit]
Description={description}
{ordering}\
# What a start cannot mend is final: see RestartPreventExitStatus. A NATS server that is away for an hour is
# no reason to stay down, so there is no limit on starts; RestartSec keeps them apart.
StartLimitIntervalSec=0

[Service]
Type=exec
X-Fairlead-Version={version}
ExecStart={command}
{identity}{environment}EnvironmentFile=-{environment_file}

Restart=always
RestartSec=2
# Configuration that must not run ({config}), a command line that makes no sense ({usage}): \
starting again is no help.
RestartPreventExitStatus={usage} {config}

# Commands of agents live in runners that outlive the service on purpose, in the same control group. A stop,
# an upgrade or a crash tells the main process alone, which ends its services; the next start finds the rest.
KillMode=process
KillSignal=SIGTERM
TimeoutStopSec={stop_s}
# A command that takes all memory is killed; it must not take the service with it.
OOMPolicy=continue

LimitNOFILE=65536
TasksMax=8192
StandardInput=null
StandardOutput=journal
StandardError=journal
SyslogIdentifier={name}
{delegation}
{hardening}
[Install]
WantedBy={target}
"""

# Not set, for each would break a kind of sandbox or the commands in it: RestrictNamespaces, SystemCallFilter,
# ProtectKernelTunables, ProtectKernelLogs, ProtectProc, ProtectHostname (bubblewrap makes namespaces, mounts,
# /proc and a host name of its own); ProtectControlGroups (limits of bubblewrap); PrivateTmp (docker binds
# paths as the engine sees them, runners outlive the folder); PrivateDevices (GPUs); MemoryDenyWriteExecute
# (node, browsers).
_SYSTEM_HARDENING: Final = """\
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=full
ProtectKernelModules=yes
RestrictRealtime=yes
"""
# A user's own manager could only make mount namespaces through user namespaces, which take away groups
# (docker) and do not work everywhere.
_USER_HARDENING: Final = """\
NoNewPrivileges=yes
RestrictRealtime=yes
"""
_ORDERING: Final = """\
Wants=network-online.target
After=network-online.target docker.service tailscaled.service
"""
_DELEGATION: Final = """\
# bubblewrap limits its sandboxes in groups beside the one of the service.
Delegate=yes
DelegateSubgroup=executor
"""


def unit_text(wanted: ServiceSpec, systemd_version: int) -> str:
    """The unit.

    Raises:
        CommandError: a word of it has more than one line, and what follows would be a directive of its own.
    """
    for word in (*wanted.command, str(wanted.home), wanted.search_path, str(wanted.places.environment)):
        if any(ord(sign) < 32 or sign == "\x7f" for sign in word):
            raise CommandError(f"the service cannot have control characters in {word[:200]!r}", USAGE)
    system = wanted.scope == "system"
    pairs = {
        "FAIRLEAD_HOME": str(wanted.home),
        "FAIRLEAD_SERVICE": wanted.name,
        "PATH": wanted.search_path,
        "PYTHONUNBUFFERED": "1",
    }
    what = "agents, gateway and NATS" if wanted.kind == "up" else "executor"
    edit = f"systemctl {'' if system else '--user '}edit {wanted.name}"
    return _UNIT.format(
        mark=MARK,
        edit=edit,
        description=f"Fairlead ({what})",
        ordering=_ORDERING if system else "",
        version=wanted.version,
        command=" ".join(unit_word(word) for word in wanted.command),
        identity=f"User={wanted.user}\nWorkingDirectory=~\n" if system else "WorkingDirectory=%h\n",
        environment="".join(f"Environment={_assigned(key, value)}\n" for key, value in pairs.items()),
        environment_file=_escaped_path(str(wanted.places.environment)),
        stop_s=STOP_S,
        usage=USAGE,
        config=CONFIG,
        name=wanted.name,
        delegation=_DELEGATION if systemd_version >= SUBGROUPS_SINCE else "",
        hardening=_SYSTEM_HARDENING if system else _USER_HARDENING,
        target="multi-user.target" if system else "default.target",
    )


def unit_word(word: str) -> str:
    """One word of `ExecStart=`, which systemd gives on unchanged."""
    escaped = word.replace("%", "%%").replace("$", "$$")
    if escaped and not any(sign in escaped for sign in " \t\"'\\;"):
        return escaped
    return '"' + escaped.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _assigned(key: str, value: str) -> str:
    text = f"{key}={value}".replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"' if any(sign in text for sign in " \t\"'\\;") else text


def _escaped_path(path: str) -> str:
    return path.replace("%", "%%")
