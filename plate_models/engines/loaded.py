"""The three nets in this process, ready for `pipeline.read_plates`."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plate_models.detection import Detect
from plate_models.pipeline import PipelineConfig, Plate, Recognize, read_plates
from plate_models.pixels import to_device
from plate_models.rectification import Rectify


class EngineError(Exception):
    """No such engine or device, or the engine can't run on that device."""


@dataclass(frozen=True)
class Nets:
    """Detector, rectifier and recognizer as `pipeline.read_plates` takes them, and their config.

    The engine is one of `engines.ENGINES`; the device is torch's, such as "cpu" or "cuda:0".
    """

    detect: Detect
    rectify: Rectify
    recognize: Recognize
    config: PipelineConfig
    engine: str
    device: str = "cpu"
    process: int = field(default_factory=os.getpid)

    def read(self, image: NDArray[np.uint8], still: bool = True) -> list[Plate]:
        """Find and read every plate of a photo, (H, W, 3) uint8 RGB."""
        if os.getpid() != self.process:  # A fork lacks their threads and would wait for ever.
            raise EngineError("these nets were loaded before a fork: load them in each process")
        nets = self.detect, self.rectify, self.recognize
        return read_plates(self.place(image), *nets, replace(self.config, still=still))

    def with_countries(self, names: Sequence[str] | None) -> "Nets":
        """These nets with the formats of given countries; see `PipelineConfig.with_countries`."""
        return replace(self, config=self.config.with_countries(names)) if names else self

    def place(self, image: NDArray[np.uint8]) -> Any:
        """Return the photo as the nets take it: torch modules take a tensor on their device."""
        served = self.engine == "served"
        return image if served else to_device(np.ascontiguousarray(image), self.device)
