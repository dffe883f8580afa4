"""What tests share: the servers they talk to.

Live tests start a Triton of their own, or use one that runs already: PLATES_TRITON_URL
(gRPC, host:port; PLATES_TRITON_HTTP_URL for the tests over HTTP) and PLATES_URL.
"""

import logging
import os
import threading

# Before anything loads gRPC: tests start programs beside its threads, and fork no workers.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import tempfile
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import fake_triton
import httpx
import pytest
from camera_events import store_of
from fake_triton import FakeTriton
from support import ELSEWHERE, running_gateway, running_triton

from plates.serving.running import running_service


def pytest_configure(config):
    """Give the renderer the few typefaces that matplotlib carries; workers inherit the setting."""
    import matplotlib

    folder = tempfile.TemporaryDirectory(prefix="plates-fonts-")
    config.add_cleanup(folder.cleanup)
    for name in ("DejaVuSans-Bold.ttf", "DejaVuSansMono-Bold.ttf"):
        Path(folder.name, name).symlink_to(Path(matplotlib.get_data_path(), "fonts/ttf", name))
    os.environ["PLATES_FONTS"] = folder.name


def pytest_runtest_setup(item):
    """Skip the tests that need control over a server's processes where it runs already."""
    if ELSEWHERE and item.get_closest_marker("control"):
        pytest.skip(f"needs control over the server's processes, and {ELSEWHERE[0]} is set")


@pytest.fixture(scope="session")
def triton():
    """Where a real Triton with the real models listens, one for the whole session."""
    if ELSEWHERE:
        grpc_url = os.environ.get("PLATES_TRITON_URL")
        if not grpc_url:
            pytest.skip("PLATES_URL is set and PLATES_TRITON_URL is not: no Triton to talk to")
        http_url = os.environ.get("PLATES_TRITON_HTTP_URL") or None
        grpc_url = grpc_url.rpartition("://")[2]
        yield SimpleNamespace(grpc_url=grpc_url, http_url=http_url, embedded=None)
        return
    with running_triton() as server:
        yield SimpleNamespace(grpc_url=server.grpc_url, http_url=server.http_url, embedded=server)


@pytest.fixture(scope="session")
def gateway_url(request, tmp_path_factory):
    """The real gateway: PLATES_URL, or a process of our own before the tests' Triton."""
    if url := os.environ.get("PLATES_URL"):
        yield url.rstrip("/")
        return
    triton = request.getfixturevalue("triton")
    log = tmp_path_factory.mktemp("gateway") / "stderr.log"
    with running_service({"PLATES_TRITON_URL": triton.grpc_url}, log) as (_, url):
        yield url


@pytest.fixture(scope="session")
def gateway(gateway_url):
    """A client of the real gateway."""
    with httpx.Client(base_url=gateway_url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def fake_of_module():
    with closing(FakeTriton()) as triton:
        yield triton


@pytest.fixture
def fake(fake_of_module):
    """A Triton that answers with two plates, until a test gives it another reply."""
    fake_of_module.reply = lambda _: fake_triton.outputs()
    fake_of_module.photos.clear()
    fake_of_module.cancelled = threading.Semaphore(0)
    return fake_of_module


@pytest.fixture(scope="module")
def client_of_module(fake_of_module):
    with running_gateway(fake_of_module, max_bytes=100_000, ready_max_age_s=0.2) as client:
        yield client


@pytest.fixture
def client(request, fake):
    """Of a gateway before the fake Triton: with a test's marked settings, or small limits."""
    marked = request.node.get_closest_marker("settings")
    if marked is None:
        yield request.getfixturevalue("client_of_module")
        return
    with running_gateway(fake, **marked.kwargs) as client:
        yield client


@pytest.fixture
def store(tmp_path):
    """A database of passes."""
    with closing(store_of(tmp_path)) as store:
        yield store


@pytest.fixture
def no_tracebacks(caplog):
    """Neither uvicorn nor asyncio was surprised."""
    yield
    # At this point `records` are of the teardown, in which gateways end.
    records = caplog.get_records("call") + caplog.records
    assert not [record for record in records if record.levelno >= logging.ERROR]
