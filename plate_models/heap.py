"""Memory that is used again for the next photo instead of going back to the system."""

import ctypes
import platform

# glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# A photo of ten megapixels; a larger one comes and goes as it did.
_KEPT_BLOCK = 32 * 2**20
_KEPT_TOTAL = 24 * 2**20
_ARENAS = 1


def keep_freed_memory() -> bool:
    """Have this process keep what it frees; to be called before it starts threads.

    A decoded photo has 6 MB. Left alone, glibc returns them to the system after each photo,
    and the next one's pages come back one by one, each with an interrupt and 4096 zeros to
    write: up to 2000 of them per photo, which on a virtual machine is a fifth of the work.

    At most 24 MB stay. One arena serves all threads, so that they share what is kept:
    otherwise each thread of a pool would come to hold a photo of its own.

    Returns:
        Whether it took effect; elsewhere than on glibc nothing happens.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = (
        (_M_MMAP_THRESHOLD, _KEPT_BLOCK),
        (_M_TRIM_THRESHOLD, _KEPT_TOTAL),
        (_M_ARENA_MAX, _ARENAS),
    )
    return all(mallopt(name, value) for name, value in settings)
