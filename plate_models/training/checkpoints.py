"""The tensors of a checkpoint: a torch archive or a safetensors file. Nothing that it names is run.

Published checkpoints hold whole modules, of classes that are not installed here, and
`torch.load(weights_only=True)` refuses every class that it doesn't know. So each unknown name is
given an empty module in its place. What a file can still take is time and memory: sixty nested
tuples as a key are hashed for ever. `within_limits` bounds both.
"""

import multiprocessing
import re
import resource
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from plate_models.release import WeightsError

# YOLOv5x with its optimizer takes some 2 GiB and 5 s.
_MAX_MEMORY_BYTES, _MAX_CPU_S = 4 << 30, 60
# Calls found in published checkpoints that describe no tensor: nothing is made of them.
_INERT_CALLS = re.compile(
    r"datetime\.datetime|numpy\.dtype|numpy\._?core\.multiarray\.(_reconstruct|scalar)"
    r"|pathlib\.(_local\.)?(Posix|Windows)Path"
)
# Where trainings put the net; YOLOv5's average, if there is one, is what it validates.
_KEYS = ("ema", "model", "state_dict")

State = dict[str, Tensor]
Result = TypeVar("Result")


class CheckpointError(WeightsError):
    """A checkpoint is damaged, hostile, or not of a net that can be imported."""


def within_limits(
    function: Callable[..., Result], *arguments: Any, cpu_s: int = _MAX_CPU_S
) -> Result:
    """Call a function of a module in a process of its own, of bounded memory and CPU time.

    Raises:
        CheckpointError: It took more, or crashed; the message names the files among the
            arguments. The function's own errors pass.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, initializer=_set_limits, initargs=(cpu_s,)) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool as error:
            files = [str(one) for one in arguments if isinstance(one, Path) and one.is_file()]
            raise CheckpointError(
                f"{', '.join(files)}: can't be read: it takes more than {cpu_s} s or crashes"
            ) from error


def _set_limits(cpu_s: int) -> None:
    # Beside what the libraries take that are loaded by now.
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * resource.getpagesize() + _MAX_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    seconds = int(time.process_time()) + cpu_s
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def read_state(path: Path) -> State:
    """Read a net's tensors without running anything the file says.

    It is a torch archive (torch 1.6 or newer) with a state dict, a module, or a dictionary with one
    of them under "ema", "model" or "state_dict"; or a safetensors file. One that is not trusted is
    read `within_limits`. Returns tensors by name, on the CPU, contiguous, float32 if floating. A
    CheckpointError names a file that is missing, damaged, hostile or holds no net.
    """
    try:
        with path.open("rb") as file:
            head = file.read(16)
        if head[8:9] == b"{":
            state = load_file(path)
        elif head.startswith(b"PK"):
            state = _state_of(_load_archive(path))
        else:
            raise CheckpointError(
                "neither a safetensors file nor a torch archive. If torch before 1.6 wrote it and "
                "you trust it, load it and save its state dict again with a newer torch"
            )
        # Before anything is copied: a thousand names for one storage would fill any memory.
        claimed, stored = sum(value.nbytes for value in state.values()), path.stat().st_size
        if claimed > stored:
            raise CheckpointError(f"its tensors claim {claimed} bytes, it has {stored}")
        floats = {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
        return {k: v.clone(memory_format=torch.contiguous_format) for k, v in floats.items()}
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except Exception as error:  # Damaged bytes lead to all kinds.
        # What torch wraps says what is wrong; its own message, how to run the file's code.
        cause = error.__context__ or error
        text = f"{path}: can't be read: {type(cause).__name__}: {cause!s:.200}"
        raise CheckpointError(text) from error


class _Inert(nn.Module):
    """Takes the place of an unknown class or function, whose name its own class bears.

    Modules are pickled as their attributes, so that it names its tensors as the lost one did.
    """

    def __new__(cls, *arguments: Any) -> "_Inert":
        """Modules are made without arguments; with some, it is a call."""
        if arguments and not _INERT_CALLS.fullmatch(cls.__name__):
            raise CheckpointError(
                f"its pickle calls {cls.__name__}: refused, and nothing was run. If you trust the "
                "file, save its tensors alone: torch.save(model.state_dict(), …)"
            )
        return super().__new__(cls)

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            super().__setstate__(state)  # type: ignore[no-untyped-call]


def _load_archive(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        # Torch does not compare the checksums.
        if damaged := archive.testzip():
            raise CheckpointError(f"{damaged}: its checksum (CRC-32) is wrong")
    unknown = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    known = [(type(name, (_Inert,), {}), name) for name in unknown]
    with torch.serialization.safe_globals(known):  # type: ignore[arg-type]
        return torch.load(path, "cpu", weights_only=True)


def _state_of(root: Any) -> State:
    """Find the net in what was saved; its tensors by the names of its state dict."""
    kept = [root.get(key) for key in _KEYS] if isinstance(root, dict) else []
    found = next((one for one in kept if isinstance(one, _Inert | dict) and one), root)
    state = found.state_dict() if isinstance(found, _Inert) else found
    if not isinstance(state, dict) or not state:
        kind = type(found).__name__
        raise CheckpointError(f"expected a module or a state dict with tensors, found {kind}")
    for key, value in state.items():
        if not (isinstance(key, str) and isinstance(value, Tensor)):
            raise CheckpointError(f"expected a module or a state dict, but {key!r:.60} is none")
    return {key: value.detach() for key, value in state.items()}
