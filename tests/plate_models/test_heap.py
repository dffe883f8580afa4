"""Freed memory is used again: pages that come back from the system cost a fault each."""

import platform
import subprocess
import sys

import pytest

from plate_models import heap

FAULTS = """
import resource
import numpy as np
from plate_models import heap

{call}
np.ones(6_000_000, np.uint8)  # as after a first photo: from here on, glibc trims at 12 MB
faults = []
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    photos = [np.ones(5_900_000, np.uint8) for _ in range(3)]
    del photos
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(faults[-1])
"""


def faults_per_photo(call: str) -> int:
    command = [sys.executable, "-c", FAULTS.format(call=call)]
    return int(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other heaps do as they like")
def test_pages_of_a_freed_photo_are_used_again():
    assert faults_per_photo("pass") > 1000  # what it is for
    assert faults_per_photo("assert heap.keep_freed_memory()") < 100


def test_elsewhere_it_says_so(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("musl", "1.2"))
    assert heap.keep_freed_memory() is False
