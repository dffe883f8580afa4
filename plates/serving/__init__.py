"""Start a real Triton on this machine, from its wheel or its image, and keep it running."""

from plates.serving.errors import EmbeddedTritonError, PreflightError, StartError
from plates.serving.triton import EmbeddedTriton

__all__ = ["EmbeddedTriton", "EmbeddedTritonError", "PreflightError", "StartError"]
