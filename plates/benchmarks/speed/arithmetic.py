"""What the nets compute, and how fast this machine computes at best."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from plate_models.engines.nets import Nets
from plate_models.weights import Modules
from plates.benchmarks.speed.stages import read_file
from plates.benchmarks.speed.turns import Times, Work, take_turns

T = TypeVar("T")

SIZES = (1024, 1536, 2048, 3072, 4096)
_TRIAL_S = 0.5
FLOAT32 = "float32"


def multiply_adds(net: Callable[[Tensor], object], batch: Tensor) -> int:
    """Count the multiply-adds of a net's convolutions and matrix products, exactly.

    Args:
        net: A torch module, or a function that calls some.
        batch: Its input.
    """
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        net(batch)
    return int(counter.get_total_flops()) // 2


@dataclass(frozen=True)
class MatrixMultiply:
    """A product of two square matrices.

    Attributes:
        left, right: (size, size), of one precision.
    """

    left: Tensor
    right: Tensor

    @classmethod
    def of(cls, size: int, precision: str) -> "MatrixMultiply":
        """Draw matrices of a size, in a precision that torch knows by name."""
        dtype = getattr(torch, precision)
        left, right = torch.randn(2, size, size, generator=torch.Generator().manual_seed(0))
        return cls(left.to(dtype), right.to(dtype))

    def __call__(self) -> Tensor:
        """Multiply."""
        return self.left @ self.right

    @property
    def size(self) -> int:
        """Rows of each matrix."""
        return len(self.left)

    @property
    def multiply_adds(self) -> int:
        """Of one product."""
        return self.size**3


def best_multiply(precision: str, sizes: Sequence[int] = SIZES) -> MatrixMultiply:
    """The size of matrices at which this machine computes most per second."""
    candidates = [MatrixMultiply.of(size, precision) for size in sizes]
    times = {
        one.size: take_turns({"product": one}, _TRIAL_S / len(sizes), least=2)["product"]
        for one in candidates
    }
    return max(candidates, key=lambda one: one.multiply_adds / times[one.size].p50_ms)


@dataclass(frozen=True)
class NetFloor:
    """A net against what this machine's matrix multiply needs for the same arithmetic.

    Attributes:
        net: Its name.
        batch: Shape of its input.
        multiply_adds: That it needs for it.
        precision: In which it computes, such as "float32".
        times: Measured.
        rates: Multiply-adds per millisecond of the matrix multiply, by precision.
    """

    net: str
    batch: tuple[int, ...]
    multiply_adds: int
    precision: str
    times: Times
    rates: dict[str, float]

    def floor_ms(self, precision: str) -> float:
        """Milliseconds that the arithmetic takes at least, in a precision."""
        return self.multiply_adds / self.rates[precision]

    @property
    def ratio(self) -> float:
        """Measured over floor, in the precision in which the net computes."""
        return self.times.p50_ms / self.floor_ms(self.precision)


def measure_floors(
    file: bytes,
    nets: Nets,
    modules: Modules,
    precisions: dict[str, str],
    seconds: float,
    sizes: Sequence[int] = SIZES,
) -> tuple[list[NetFloor], dict[str, MatrixMultiply]]:
    """Run each net on what a photo gives it, in turns with matrix multiplies.

    Args:
        file: A photo with at least one plate.
        nets: What is measured.
        modules: The same nets in torch, to be counted.
        precisions: In which yolo, stn and lprnet compute.
        seconds: To go on for.
        sizes: Of the matrices to try.

    Returns:
        The three nets, and the matrix multiply of each precision.

    Raises:
        ValueError: There is no plate in the photo.
    """
    batches = inputs_of(file, nets)
    products = {
        precision: best_multiply(precision, sizes)
        for precision in sorted({FLOAT32, *precisions.values()})
    }
    functions = {"yolo": nets.detect, "stn": nets.rectify, "lprnet": nets.recognize}
    counted = {"yolo": modules.detect, "stn": modules.rectify, "lprnet": modules.recognize}
    works: dict[str, Work] = {}
    for name, batch in batches.items():
        works[name] = _call(functions[name], batch)
        works |= {f"{name}, {precision}": one for precision, one in products.items()}
    with torch.inference_mode():
        times = take_turns(works, seconds)
    floors = []
    for name, batch in batches.items():
        rates = {
            precision: one.multiply_adds / times[f"{name}, {precision}"].p50_ms
            for precision, one in products.items()
        }
        count = multiply_adds(counted[name], batch)
        shape = tuple(batch.shape)
        floors.append(NetFloor(name, shape, count, precisions[name], times[name], rates))
    return floors, products


def _call(net: Callable[[Tensor], object], batch: Tensor) -> Work:
    return lambda: net(batch)


def inputs_of(file: bytes, nets: Nets) -> dict[str, Tensor]:
    """What yolo, stn and lprnet are given for a photo, the first time each is called.

    Raises:
        ValueError: There is no plate in the photo.
    """
    given: dict[str, Tensor] = {}

    def seen(name: str, net: Callable[[Tensor], T]) -> Callable[[Tensor], T]:
        def call(batch: Tensor) -> T:
            given.setdefault(name, batch.clone())
            return net(batch)

        return call

    watched = Nets(
        seen("yolo", nets.detect),
        seen("stn", nets.rectify),
        seen("lprnet", nets.recognize),
        nets.config,
        nets.engine,
        nets.device,
    )
    read_file(file, watched)
    if "lprnet" not in given:
        raise ValueError("expected a photo with a plate: none was found, so no net reads one")
    return given
