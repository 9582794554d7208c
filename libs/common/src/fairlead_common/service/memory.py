"""What a process holds once it has started: nothing that only the start needed."""

import ctypes
import gc


def settle_memory() -> None:
    """Give back what the start left over, and spare the garbage collector what stays. Takes some 30 ms.

    Modules and their functions live as long as the process: without `freeze` each full collection would walk
    over all of them, a quarter of a million objects in the gateway. A C library without `malloc_trim` keeps
    its free pages.
    """
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
