"""What a checkpoint claims to hold: names, inert objects, tensors that were not read yet."""

from dataclasses import dataclass, field
from typing import Any

from plate_models.weights import WeightsError


class CheckpointError(WeightsError):
    """A checkpoint is damaged, hostile, or not of a net that can be imported."""


@dataclass(frozen=True)
class Global:
    """The name of a class or a function, which is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, repr=False)
class Inert:
    """An object whose class was not loaded.

    Attributes:
        kind: Its class, or the function that would have made it.
        attributes: Its state, as far as it is a dictionary.
    """

    kind: Global
    attributes: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StorageClaim:
    """Numbers that lie elsewhere in the archive: class of their storage, key, count."""

    kind: Global
    key: str
    numel: int


@dataclass(frozen=True)
class TensorClaim:
    """A view of a storage, as the pickle claims it: nothing is checked or read yet."""

    storage: StorageClaim
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
