"""Tries to get out of the sandbox it is run in, and prints as JSON what each try came to.

Standard library only. Argument: JSON with `secret` (a file of the host), `port` (a listener of the host on
loopback), `abstract` (an abstract socket of the host), `calls` (numbers of calls that must be refused).
A try is `refused: <why>`, or `DONE: <what it got>`.
"""

import contextlib
import ctypes
import errno
import glob
import json
import os
import socket
import sys

GIVEN = json.loads(sys.argv[1])
TRIES = {}


def attempt(name):
    def take(body):
        try:
            got = body()
        except (OSError, ValueError) as error:
            TRIES[name] = f"refused: {error}"
        else:
            TRIES[name] = f"DONE: {str(got)[:200]!r}" if got else "refused: nothing there"

    return take


def read(path):
    with open(path, "rb") as file:
        return file.read(200) or b"(empty)"


def write(path):
    with open(path, "w") as file:
        file.write("x")
    return path


for path in (
    "/etc/shadow",
    GIVEN["secret"],
    f"/proc/1/root{GIVEN['secret']}",
    "/proc/1/environ",
    "/proc/kcore",
):
    attempt(f"SB-01 read {path}")(lambda path=path: read(path))
for path in (
    "/root",
    "/home/*/.ssh",
    "/var/lib",
    "/boot",
    "/mnt",
    "/srv",
    "/run/fairlead/*",
    "/run/hostproc/*",
):
    attempt(f"SB-01 list {path}")(lambda path=path: glob.glob(path))
attempt("SB-01 up from the workspace")(
    lambda: os.stat("/workspace/../../..").st_ino != os.stat("/").st_ino or glob.glob("../../*/.ssh")
)
for path in (
    "../run/fairlead/*",
    "../run/hostproc/*",
    "../../run/fairlead/*",
    "/proc/self/cwd/../run/fairlead/*",
):
    attempt(f"SB-01 list {path}")(lambda path=path: glob.glob(path))
attempt("SB-01 a folder of another mount namespace")(lambda: "unreachable" in os.getcwd() and os.getcwd())
for path in ("/usr/bin/x", "/etc/passwd", "/x", "/opt/x", "/run/x", "/lib/x", GIVEN["secret"], "/var/x"):
    attempt(f"SB-02 write {path}")(lambda path=path: write(path))


def connect(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.settimeout(2)
        sock.connect(address)
        return address


SOCKETS = [
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/fairlead/sock",
]
for path in SOCKETS + glob.glob("/run/**/*sock*", recursive=True):
    attempt(f"SB-03 connect {path}")(lambda path=path: connect(socket.AF_UNIX, path))
attempt("SB-03 abstract socket of the host")(lambda: connect(socket.AF_UNIX, "\0" + GIVEN["abstract"]))
for address in (("127.0.0.1", GIVEN["port"]), ("169.254.169.254", 80), ("1.1.1.1", 443), ("10.0.0.1", 22)):
    attempt(f"SB-04 connect {address[0]}")(lambda address=address: connect(socket.AF_INET, address))
attempt("SB-04 connect over IPv6")(lambda: connect(socket.AF_INET6, ("2606:4700::1111", 443)))


def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        return sock.sendto(b"x" * 20, ("1.1.1.1", 53))


attempt("SB-04 datagram to a name server")(datagram)
attempt("SB-04 look up a name")(lambda: socket.getaddrinfo("example.org", 80))
FAMILIES = {"packet": (17, 3), "vsock": (40, 1), "alg": (38, 5), "key": (15, 3), "bluetooth": (31, 3)}
for name, (family, kind) in FAMILIES.items():
    attempt(f"SB-04 socket {name}")(lambda family=family, kind=kind: socket.socket(family, kind))
attempt("SB-04 raw socket")(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP))

libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(each) for each in arguments])
    code = ctypes.get_errno()
    if result == -1 and code in (errno.EPERM, errno.ENOSYS):
        raise OSError(code, os.strerror(code))
    return f"answered {result}, {errno.errorcode.get(code, code)}"


for name, number in GIVEN["calls"].items():
    attempt(f"SB-06 {name}")(lambda number=number: call(number, 0, 0, 0, 0, 0, 0))
CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
for name, flag in {"user": 1 << 28, "mount": 1 << 17, "net": 1 << 30, "pid": 1 << 29}.items():
    attempt(f"SB-06 clone a {name} namespace")(lambda flag=flag: call(CLONE, flag | 17, 0, 0, 0, 0))
attempt("SB-06 clone3")(lambda: call(435, 0, 0))
if os.uname().machine == "x86_64":
    attempt("SB-06 numbers of x32")(lambda: call(0x40000000 + 39))


def types_into_terminal():
    import fcntl

    return fcntl.ioctl(0, 0x5412, b"x") == 0


attempt("SB-06 type into a terminal")(types_into_terminal)
for path in ("/usr", "/tmp", "/workspace", "/dev/shm", "/"):
    attempt(f"SB-07 set-uid works in {path}")(
        lambda path=path: not os.statvfs(path).f_flag & os.ST_NOSUID and "no nosuid"
    )
attempt("SB-07 be root")(lambda: os.setuid(0) or "root")
for path in (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/kernel/modprobe",
    "/proc/sysrq-trigger",
    "/sys/fs/cgroup/memory/x",
    "/proc/self/oom_score_adj",
    "/dev/mem",
    "/dev/kmsg",
):
    attempt(f"SB-08 write {path}")(lambda path=path: write(path))
for path in (
    "/dev/mem",
    "/dev/kvm",
    "/dev/sda",
    "/dev/vda",
    "/dev/kmsg",
    "/dev/fuse",
    "/dev/net/tun",
    "/sys",
):
    attempt(f"SB-08 see {path}")(lambda path=path: os.path.exists(path))
attempt("SB-09 overwrite the program that runs")(lambda: os.open("/proc/self/exe", os.O_RDWR))


def leave_by_descriptor():
    for fd in range(3, 64):
        for way in (f"/proc/self/fd/{fd}", f"/proc/1/fd/{fd}", "/proc/1/cwd", "/proc/1/root/../.."):
            with contextlib.suppress(OSError):
                os.chdir(way)
                return os.listdir(".")
    return None


attempt("SB-09 leave by an open folder")(leave_by_descriptor)
attempt("SB-22 set the clock")(lambda: __import__("time").clock_settime(0, 0.0) or "set")
attempt("SB-22 set the name of the host")(lambda: socket.sethostname("x") or "set")


def kill_others():
    done = []
    for pid in range(1, 400):
        if pid not in (os.getpid(), os.getppid()):
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
                if pid > 1:  # the first process of a namespace ignores what it does not handle
                    done.append(pid)
    return done


attempt("SB-28 kill what is not ours")(kill_others)
with open("/proc/self/status") as file:
    STATUS = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
print(json.dumps({"tries": TRIES, "status": STATUS, "uid": os.getuid(), "host": socket.gethostname()}))
