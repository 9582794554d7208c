"""A real sshd on a free port of the loopback address, for the user that runs the tests."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.support.ports import free_port

SSHD = shutil.which("sshd") or next((p for p in ("/usr/sbin/sshd",) if os.access(p, os.X_OK)), "")
MISSING = "" if SSHD and shutil.which("ssh-keygen") else "sshd and ssh-keygen are not installed"

_WAIT_S = 40.0


class Sshd:
    """Keys, configuration and process in one folder. `known_hosts` holds its key."""

    starts = "process"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.identity = folder / "identity"
        self.known_hosts = folder / "known_hosts"
        self.port = free_port()
        self.user = getpass.getuser()
        self._process: subprocess.Popen[bytes] | None = None
        for name in ("identity", "host_key"):
            keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(keygen, check=True, timeout=_WAIT_S)
        shutil.copy(folder / "identity.pub", folder / "authorized_keys")
        public = (folder / "host_key.pub").read_text()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public}")
        (folder / "config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n"
        )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> "Sshd":
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            # In a group of its own, so that its connections end with it.
            self._process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(self.folder / "config")], stderr=log, start_new_session=True
            )
        end = time.monotonic() + _WAIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
            except OSError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < end, "sshd does not listen"
                time.sleep(0.01)
            else:
                return self

    def cut(self) -> None:
        """End every connection, as a network that fails does; new ones are taken."""
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            _kill_tree(int(child))

    def stop(self) -> None:
        if self._process is not None:
            self.cut()
            self._process.kill()
            self._process.wait(timeout=_WAIT_S)
            self._process = None


def _kill_tree(pid: int) -> None:
    """The session's processes of sshd, not what runs in it: that is for the connection's end to tell."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(pid, 9)
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        try:
            name = Path(f"/proc/{child}/comm").read_text()
        except OSError:
            continue
        if name.startswith("sshd"):
            _kill_tree(int(child))
