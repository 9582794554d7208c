"""What a process holds once it has started, or after much work: nothing that it does not need."""

import ctypes
import gc


def settle_memory() -> None:
    """Give back what the start left over, and spare the garbage collector what stays. Takes some 30 ms.

    Modules and their functions live as long as the process: without `freeze` each full collection would walk
    over all of them, a quarter of a million objects in the gateway. `import_lean` switched it off until now.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    _return_free_pages()


def release_memory() -> None:
    """Give back what much work left over. Takes some 10 ms for 100 MB: not while nothing is to be gained."""
    gc.collect()  # exceptions and their tracebacks are cycles, and may hold what was to be sent
    _return_free_pages()


def _return_free_pages() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
