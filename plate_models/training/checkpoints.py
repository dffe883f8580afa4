"""Reads a checkpoint's tensors, from a torch archive or a safetensors file, without running code.

Published checkpoints hold whole modules, whose classes are not installed here, and
`torch.load(weights_only=True)` refuses every unknown class. So an inert module takes the place of
each unknown name. A hostile file can still use up time and memory: hashing a key of sixty nested
tuples never ends.
"""

import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from plate_models.release import WeightsError

# Calls in published checkpoints that are ignored, because they describe no tensor.
_INERT_CALLS = re.compile(
    r"datetime\.datetime|numpy\.dtype|numpy\._?core\.multiarray\.(_reconstruct|scalar)"
    r"|pathlib\.(_local\.)?(Posix|Windows)Path"
)
# Keys under which trainings save the net; YOLOv5 validates its average, "ema", if there is one.
_KEYS = ("ema", "model", "state_dict")

State = dict[str, torch.Tensor]


def read_state(path: Path) -> State:
    """Read a net's tensors without running code from the file.

    The file is a torch archive (torch 1.6 or newer) with a state dict, a module, or a dictionary
    with either under "ema", "model" or "state_dict"; or a safetensors file. Returns tensors by
    name, on the CPU, contiguous, float32 if floating. Raises WeightsError if the file is
    missing, damaged, hostile or holds no net.
    """
    try:
        with path.open("rb") as file:
            head = file.read(16)
        if head[8:9] == b"{":
            state = load_file(path)
        elif head.startswith(b"PK"):
            state = _state_of(_load_archive(path))
        else:
            raise WeightsError(
                "neither a safetensors file nor a torch archive. If torch before 1.6 wrote it and "
                "you trust it, load it and save its state dict again with a newer torch"
            )
        # Check before copying: a thousand names for one storage would exhaust the memory.
        claimed, stored = sum(value.nbytes for value in state.values()), path.stat().st_size
        if claimed > stored:
            raise WeightsError(f"its tensors claim {claimed} bytes, it has {stored}")
        floats = {k: v.float() if v.is_floating_point() else v for k, v in state.items()}
        return {k: v.clone(memory_format=torch.contiguous_format) for k, v in floats.items()}
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error
    except Exception as error:  # damaged bytes raise all kinds of errors
        # The error that torch wraps names the cause; torch's own tells how to run the file's code.
        cause = error.__context__ or error
        text = f"{path}: can't be read: {type(cause).__name__}: {cause!s:.200}"
        raise WeightsError(text) from error


class _Inert(torch.nn.Module):
    """Replaces an unknown class or function; a subclass bears its name.

    A pickled module consists of its attributes, so the replacement's state dict has the same names.
    """

    def __new__(cls, *arguments: Any) -> "_Inert":
        """Unpickling creates modules without arguments; with arguments, it calls a function."""
        if arguments and not _INERT_CALLS.fullmatch(cls.__name__):
            raise WeightsError(
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
        # Torch doesn't verify the checksums.
        if damaged := archive.testzip():
            raise WeightsError(f"{damaged}: its checksum (CRC-32) is wrong")
    unknown = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    known = [(type(name, (_Inert,), {}), name) for name in unknown]
    with torch.serialization.safe_globals(known):  # type: ignore[arg-type]
        return torch.load(path, "cpu", weights_only=True)


def _state_of(root: Any) -> State:
    """Find the net in a checkpoint's root object; returns its state dict."""
    kept = [root.get(key) for key in _KEYS] if isinstance(root, dict) else []
    found = next((one for one in kept if isinstance(one, _Inert | dict) and one), root)
    state = found.state_dict() if isinstance(found, _Inert) else found
    if not isinstance(state, dict) or not state:
        kind = type(found).__name__
        raise WeightsError(f"expected a module or a state dict with tensors, found {kind}")
    for key, value in state.items():
        if not (isinstance(key, str) and isinstance(value, torch.Tensor)):
            raise WeightsError(f"expected a module or a state dict, but {key!r:.60} is none")
    # Copying raises for tensors without values, on the device "meta", which a file may have.
    return {key: value.detach().cpu() for key, value in state.items()}
