"""Torch archives around any pickle, and pickles written opcode by opcode."""

import struct
import zipfile
from pathlib import Path


def archive(path: Path, data: bytes, storages: dict[str, bytes] | None = None) -> Path:
    """A zip archive as torch writes it, around any pickle."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        file.writestr("archive/data.pkl", data)
        file.writestr("archive/version", "3\n")
        for key, content in (storages or {}).items():
            file.writestr(f"archive/data/{key}", content)
    return path


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def tensor(numel: int, offset: int, size: str, stride: str, kind: str = "FloatStorage") -> bytes:
    """A state dict {"w": tensor}, with whatever a tensor can claim, in opcodes."""

    def number(value: int) -> bytes:
        return b"\x8a\x08" + struct.pack("<q", value)

    def numbers(values: str) -> bytes:
        return b"(" + b"".join(number(int(value)) for value in values.split()) + b"t"

    storage = b"(" + text("storage") + f"ctorch\n{kind}\n".encode() + text("0") + text("cpu")
    claim = storage + number(numel) + b"tQ" + number(offset) + numbers(size) + numbers(stride)
    rebuilt = b"ctorch._utils\n_rebuild_tensor_v2\n(" + claim + b"\x89NtR"
    return b"\x80\x02}(" + text("w") + rebuilt + b"u."
