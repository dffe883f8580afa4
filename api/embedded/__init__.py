"""Start a real Triton on this machine, from its wheel or its image: standard library only."""

from api.embedded.errors import EmbeddedTritonError, PreflightError, StartError
from api.embedded.server import EmbeddedTriton

__all__ = ["EmbeddedTriton", "EmbeddedTritonError", "PreflightError", "StartError"]
