"""Settings of this process in libc and the kernel, on Linux."""

import ctypes
import platform

_PR_SET_PDEATHSIG = 1
# glibc's malloc.h: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_ARENA_MAX. A photo of ten megapixels
# fits into 32 MB; the memory of a larger one is returned to the system after use.
_MALLOC_SETTINGS = ((-3, 32 * 2**20), (-1, 24 * 2**20), (-8, 1))


def die_with_parent(signal_number: int) -> None:
    """Have the kernel signal this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal_number)


def keep_freed_memory() -> None:
    """Make this process keep freed memory for the next photo; call this before it starts threads.

    A decoded photo has 6 MB. By default glibc returns them to the system after each photo, and
    the next photo's pages come back one by one, each with an interrupt and 4096 zeros to write:
    up to 2000 pages per photo, which on a virtual machine is a fifth of the work. At most 24 MB
    are kept. One arena serves all threads, so that they share this memory. Without glibc this
    does nothing.
    """
    if platform.libc_ver()[0] == "glibc":
        for name, value in _MALLOC_SETTINGS:
            ctypes.CDLL(None).mallopt(name, value)
