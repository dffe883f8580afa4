"""Start a real Triton from its wheel on this machine: standard library only."""

from api.embedded.errors import EmbeddedTritonError, PreflightError, StartError
from api.embedded.server import EmbeddedTriton

__all__ = ["EmbeddedTriton", "EmbeddedTritonError", "PreflightError", "StartError"]
