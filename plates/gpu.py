"""Whether this machine has a GPU."""

import ctypes


def find_gpu_problem(library: str = "libcuda.so") -> str | None:
    """Ask NVIDIA's driver, as Triton loads it, why no GPU can be used; None if one can."""
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return f"NVIDIA's driver is not there ({library} is not found by that name)"
    count = ctypes.c_int()
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return f"NVIDIA's driver finds none (CUDA error {status})"
    return None if count.value else "NVIDIA's driver finds none"
