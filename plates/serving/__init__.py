"""Start a real Triton on this machine, from its wheel or its image: standard library only."""

from plates.serving.errors import EmbeddedTritonError, PreflightError, StartError
from plates.serving.server import EmbeddedTriton

__all__ = ["EmbeddedTriton", "EmbeddedTritonError", "PreflightError", "StartError"]
