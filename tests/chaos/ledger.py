"""The tool command of the chaos runs: `python3 -IS ledger.py <op> <seconds>` leaves one line for ever.

The line `<op> <pid> <monotonic nanoseconds>` is one append, synced, in the middle of the given time.
"""

import os
import sys
import time

op, seconds = sys.argv[1], float(sys.argv[2])
time.sleep(seconds / 2)
ledger = os.open("ledger.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
os.write(ledger, f"{op} {os.getpid()} {time.monotonic_ns()}\n".encode())
os.fsync(ledger)
time.sleep(seconds / 2)
sys.stdout.write(f"done {op}\n")
