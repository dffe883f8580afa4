"""A GPU reads the same as the host, without copying pixels or crops to the host.

A simulated device, which computes on the CPU, shows this on machines without a GPU.
"""

from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from support import SAMPLES, read_samples
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from plate_models import weights
from plate_models.engines.cuda_graphs import CudaGraphs
from plate_models.engines.nets import load_nets
from plate_models.images import decode
from plate_models.pipeline import read_plates
from plate_models.spec import RECTIFIER

DEVICE = torch.device("privateuseone:0")


class OnDevice(Tensor):
    """A tensor on the simulated device; ``inner`` has its values."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner):
        # Ordinary tensors even in inference mode: torch refuses views between the two kinds.
        with torch.inference_mode(False):
            memory = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
            tensor = Tensor._make_wrapper_subclass(
                cls, inner.shape, **memory, dtype=inner.dtype, device=DEVICE
            )
        tensor.inner = inner
        return tensor

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        raise AssertionError(f"{op} outside of Watch")


class Watch(TorchDispatchMode):
    """Runs the simulated device's operations; refuses tensors of two devices, as CUDA does."""

    def __init__(self):
        super().__init__()
        # Type and shape of each tensor copied to the host, in order.
        self.copied = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        given = dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves((args, given)) if isinstance(leaf, Tensor)]
        on_device = [tensor for tensor in tensors if isinstance(tensor, OnDevice)]
        target = given.get("device")
        to_device = target is not None and torch.device(target).type == DEVICE.type
        if not on_device and not to_device:
            return op(*args, **given)
        if op._can_decompose():  # inference mode passes composite operations undivided
            with self:
                return op.decompose(*args, **given)
        if to_device:
            given["device"] = torch.device("cpu")
        name = op.overloadpacket.__name__
        gives_a_number = name in ("_local_scalar_dense", "is_nonzero", "equal")
        to_host = gives_a_number or (target is not None and not to_device)
        if to_host:
            self.copied += [(tensor.dtype, tuple(tensor.shape)) for tensor in on_device]
        elif not to_device and any(t.ndim for t in tensors if not isinstance(t, OnDevice)):
            raise RuntimeError(f"{name}: tensors on the host and on the device in one operation")
        found = op(*tree_map(_inner, args), **tree_map(_inner, given))
        if to_host:
            return found
        if op._schema.is_mutable and isinstance(args[0], OnDevice):
            return args[0]
        return tree_map(lambda leaf: OnDevice(leaf) if isinstance(leaf, Tensor) else leaf, found)


def _inner(leaf):
    return leaf.inner if isinstance(leaf, OnDevice) else leaf


@pytest.fixture(autouse=True, scope="module")
def simulated_device():
    _setup_privateuseone_for_python_backend()


@pytest.mark.parametrize(
    ("name", "again", "batch", "moved"),
    [("square_plates.jpg", 0.9, 32, 1), ("two_at_night.jpg", 0.5, 1, 14), ("", 0.9, 32, 1)],
)
def test_a_device_reads_the_same_as_the_host_and_copies_no_pixels(name, again, batch, moved):
    """Plates at night are blurred by motion, cropped again, and read in batches of one."""
    pixels = decode((SAMPLES / name).read_bytes()) if name else np.zeros((300, 400, 3), np.uint8)
    pixels = cv2.blur(pixels, (moved, 1))
    photo, released = torch.from_numpy(pixels), weights.load_modules()
    nets = released.detect, released.rectify, released.recognize
    rectifier = replace(RECTIFIER, look_again_from=again, max_batch_size=batch)
    specs = released.config.specs
    recognizer = replace(specs.recognizer, max_batch_size=batch)
    specs = replace(specs, rectifier=rectifier, recognizer=recognizer)
    config = replace(released.config, specs=specs)
    # Pure graphs on the device: they fail if a tensor is on the host.
    on_device = [lambda t, net=net: tree_map(OnDevice, net(t.inner)) for net in nets]
    with torch.no_grad(), Watch() as watcher:
        found = read_plates(photo.to(DEVICE), *on_device, config)
    assert {plate.text for plate in read_samples().get(name, [])} <= {p.reading.text for p in found}
    arrays = [lambda a, net=net: tree_map(Tensor.numpy, net(torch.from_numpy(a))) for net in nets]
    on_host = read_plates(pixels, *arrays, config)
    # OpenCV resizes on the host, with slightly different scores: the order of boxes may differ.
    both = (sorted(plates, key=lambda plate: plate.box) for plates in (found, on_host))
    for one, other in zip(*both, strict=True):
        assert one.reading.text == other.reading.text and one.lines == other.lines
        assert one.reading.score == pytest.approx(other.reading.score, abs=0.01)
        np.testing.assert_allclose(one.quad, other.quad, atol=0.5)
    # Only candidates, theta and logits are copied, and at the end the rectified plates to show.
    shown = [shape for dtype, shape in watcher.copied if dtype == torch.uint8]
    assert all(shape[1:] == (*RECTIFIER.shown_hw, 3) for shape in shown)
    assert len(shown) <= 1 or (moved > 1 and {17, 4} <= {shape[0] for shape in shown})
    floats = [shape[1:] for dtype, shape in watcher.copied if dtype != torch.uint8]
    assert set(floats) <= {(), (6,), (2, 3), (recognizer.classes, recognizer.steps)}


def test_replayed_cuda_graphs_return_the_nets_outputs_for_any_batch_size():
    shapes = []

    def net(batch):
        return batch * 2, batch.sum(dim=1)

    def record(net, given):
        shapes.append(tuple(given.shape))
        outputs = net(given)  # a CUDA graph overwrites its outputs
        return lambda: [*map(Tensor.copy_, outputs, net(given))] and None, outputs

    replayed, batches = CudaGraphs(net, record), [torch.rand(rows, 3) for rows in (1, 3, 4, 2, 3)]
    for answer, batch in zip([replayed(batch) for batch in batches], batches, strict=True):
        assert all(map(torch.equal, answer, net(batch)))
    assert shapes == [(1, 3), (4, 3), (2, 3)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_a_gpu_reads_the_same_as_the_host():
    on_gpu, on_host = load_nets("torch", "cuda:0"), load_nets("torch", "cpu")
    for name in read_samples():
        photo = decode((SAMPLES / name).read_bytes())
        texts = [[plate.reading.text for plate in each.read(photo)] for each in (on_gpu, on_host)]
        assert texts[0] == texts[1], name
