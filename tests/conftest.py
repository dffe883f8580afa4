"""What tests share: the servers they talk to.

Live tests start a Triton of their own, or talk to somebody else's: PLATES_TRITON_URL
(gRPC, host:port; PLATES_TRITON_HTTP_URL for the tests over HTTP) and PLATES_URL.
"""

import os

# Before anything loads gRPC: tests start programs beside its threads, and fork no workers.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from gateway_fixtures import (  # noqa: F401  fixtures
    client,
    fake,
    fake_of_module,
    gateway,
    gateway_url,
    no_tracebacks,
)

from plates.serving import EmbeddedTriton

ROOT = Path(__file__).resolve().parent.parent
# The exported models; another folder while weights are being trained.
REPOSITORY = Path(os.environ.get("PLATES_MODEL_REPOSITORY") or ROOT / "model_repository")
ELSEWHERE = tuple(name for name in ("PLATES_URL", "PLATES_TRITON_URL") if os.environ.get(name))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Against somebody else's server, leave alone the tests that need control over it."""
    if not ELSEWHERE:
        return
    reason = f"needs control over the server's processes, and {ELSEWHERE[0]} is set"
    for item in items:
        if item.get_closest_marker("control"):
            item.add_marker(pytest.mark.skip(reason=reason))


@dataclass(frozen=True)
class TritonEndpoints:
    """Where a Triton listens: host:port each; ``embedded`` if it is ours."""

    grpc_url: str
    http_url: str | None
    embedded: EmbeddedTriton | None = None


@pytest.fixture(scope="session")
def repository() -> Path:
    """The exported model repository."""
    return REPOSITORY


@pytest.fixture(scope="session")
def triton(repository: Path) -> Iterator[TritonEndpoints]:
    """A real Triton with the real models, one for the whole session."""
    if ELSEWHERE:
        grpc_url = os.environ.get("PLATES_TRITON_URL")
        if not grpc_url:
            pytest.skip("PLATES_URL is set and PLATES_TRITON_URL is not: no Triton to talk to")
        http_url = os.environ.get("PLATES_TRITON_HTTP_URL") or None
        yield TritonEndpoints(grpc_url.rpartition("://")[2], http_url)
        return
    with EmbeddedTriton(repository) as server:
        yield TritonEndpoints(server.grpc_url, server.http_url, server)
