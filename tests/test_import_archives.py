"""Archives that claim more than they hold, or are no archives, are refused."""

import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_archives import archive, tensor

from plate_models.training.importing import CheckpointError
from plate_models.training.importing.checkpoints import read_state


def test_the_tensor_opcodes_are_sound(tmp_path: Path) -> None:
    values = struct.pack("<6f", *range(6))
    path = archive(tmp_path / "x.pt", tensor(6, 1, "2 2", "1 2"), {"0": values})
    assert read_state(path)["w"].tolist() == [[1.0, 3.0], [2.0, 4.0]]
    assert torch.equal(torch.load(path, weights_only=True)["w"], read_state(path)["w"])
    archive(path, tensor(0, 0, "0 3", "3 1"), {"0": b""})
    assert read_state(path)["w"].shape == (0, 3)


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ((6, 1, "2 3", "3 1"), "lies outside its storage of 6"),
        ((6, 7, "1", "1"), "lies outside"),
        ((6, 0, "2 2", "1"), "lies outside|can't be read"),
        ((2**40, 0, f"{2**40}", "1"), "claim"),
        ((6, 0, f"{2**40}", "0"), "claim"),
        ((2**40, 0, "2", "1"), "expected 4398046511104 bytes, found 24"),
        ((7, 0, "7", "1"), "claim|expected 28 bytes, found 24"),
        ((6, -1, "2", "1"), r"_rebuild_tensor_v2"),
        ((6, 0, "-2", "1"), r"_rebuild_tensor_v2"),
        ((6, 0, "2", "-1"), r"_rebuild_tensor_v2"),
        ((-6, 0, "2", "1"), "no storage"),
        ((6, 0, "2", "1", "UntypedStorage"), r"torch\.UntypedStorage is no storage"),
    ],
)
def test_claims_are_checked_before_memory_is_taken(
    tmp_path: Path, claim: tuple, message: str
) -> None:
    path = archive(tmp_path / "claims.pt", tensor(*claim), {"0": bytes(24)})
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=rf"claims\.pt: .*({message})"):
            read_state(path)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_a_hundred_axes_do_no_harm(tmp_path: Path) -> None:
    ones = " ".join("1" * 100)
    path = archive(tmp_path / "axes.pt", tensor(6, 0, ones, ones), {"0": bytes(24)})
    assert read_state(path)["w"].numel() == 1


def test_many_names_for_one_storage_are_refused(tmp_path: Path) -> None:
    shared = torch.ones(10_000)
    torch.save({f"w{k}": shared.view(100, 100) for k in range(50)}, tmp_path / "many.pt")
    with pytest.raises(CheckpointError, match="its tensors claim 2000000 bytes, it has"):
        read_state(tmp_path / "many.pt")


def test_a_storage_that_is_missing(tmp_path: Path) -> None:
    archive(tmp_path / "x.pt", tensor(1, 0, "1", "1"), {"1": bytes(24)})
    with pytest.raises(CheckpointError, match=r"archive/data/0: expected 4 bytes, found none"):
        read_state(tmp_path / "x.pt")


def compressed(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", bytes(50_000_000))


def truncated(path: Path) -> None:
    torch.save({"w": torch.ones(1000)}, path)
    path.write_bytes(path.read_bytes()[:2000])


def without_a_pickle(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/version", "3")


def with_two_pickles(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/data.pkl", b".")
        file.writestr("b/data.pkl", b".")


def overlapping(path: Path) -> None:
    """Twenty entries that are the same bytes: the file is smaller than its content."""
    archive(path, b"N.", {str(k): bytes(1000) for k in range(20)})
    raw = bytearray(path.read_bytes())
    start = raw.index(b"PK\x01\x02")
    while (start := raw.find(b"PK\x01\x02", start)) >= 0:
        struct.pack_into("<II", raw, start + 20, 9000, 9000)
        start += 4
    path.write_bytes(raw)


def damaged_storage(path: Path) -> None:
    torch.save({"w": torch.full((4,), 1.2345)}, path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(struct.pack("<f", 1.2345))] ^= 1
    path.write_bytes(raw)


def scripted(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        for name in ("data.pkl", "constants.pkl", "code/__torch__.py"):
            file.writestr(f"archive/{name}", b"N.")


def big_endian(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/data.pkl", b"}.")
        file.writestr("archive/byteorder", b"big")


def long_pickle(path: Path) -> None:
    archive(path, b"\x80\x02" + b"}" * 5_000_000)


FILES = {
    compressed: "compressed",
    truncated: "can't be read",
    without_a_pickle: "found 0",
    with_two_pickles: "found 2",
    overlapping: "its entries claim",
    damaged_storage: "CRC",
    scripted: "TorchScript",
    big_endian: "big-endian",
    long_pickle: "5000002 bytes, too many",
    Path.touch: "neither a torch checkpoint nor",
    Path.mkdir: "can't be read",
    lambda path: path.write_bytes(b"\x10\0\0\0\0\0\0\0{never closed"): "can't be read",
}


@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_broken_files_are_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "broken.pt"
    make(path)
    with pytest.raises(CheckpointError, match=rf"broken\.pt: .*{FILES[make]}"):
        read_state(path)
