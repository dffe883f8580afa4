"""Fixtures for all tests: the servers that tests talk to.

Live tests start their own Triton and gateway, or use running ones: PLATES_TRITON_URL (gRPC,
host:port; PLATES_TRITON_HTTP_URL for tests over HTTP) and PLATES_URL (the gateway).
"""

import logging
import os
import threading

# Must be set before gRPC is loaded. Tests start programs while gRPC's threads run, but never fork
# workers, so they need no fork support.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import tempfile
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace

import httpx
import pytest
from camera_events import store_of
from fake_triton import FakeTriton, outputs
from support import ELSEWHERE, running_gateway, running_triton

from plates.cli import main as cli
from plates.serving.running import running_service


def pytest_configure(config):
    """Let the renderer use two of matplotlib's typefaces; xdist workers inherit the variable."""
    matplotlib = Path(find_spec("matplotlib").origin).parent  # importing it would take longer
    folder = tempfile.TemporaryDirectory(prefix="plates-fonts-")
    config.add_cleanup(folder.cleanup)
    for name in ("DejaVuSans-Bold.ttf", "DejaVuSansMono-Bold.ttf"):
        Path(folder.name, name).symlink_to(matplotlib / "mpl-data/fonts/ttf" / name)
    os.environ["PLATES_FONTS"] = folder.name


def pytest_runtest_setup(item):
    """Skip tests marked `control` if the server was not started by the tests."""
    if ELSEWHERE and item.get_closest_marker("control"):
        pytest.skip(f"needs control over the server's processes, and {ELSEWHERE[0]} is set")


@pytest.fixture(scope="session")
def triton():
    """The addresses of a real Triton with the real models; one for the whole session."""
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
    """The URL of the real gateway: PLATES_URL, or a process started for the tests' Triton."""
    if url := os.environ.get("PLATES_URL"):
        yield url.rstrip("/")
        return
    triton = request.getfixturevalue("triton")
    log = tmp_path_factory.mktemp("gateway") / "stderr.log"
    with running_service({"PLATES_TRITON_URL": triton.grpc_url}, log) as (_, url):
        yield url


@pytest.fixture(scope="session")
def gateway(gateway_url):
    """An HTTP client of the real gateway."""
    with httpx.Client(base_url=gateway_url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def fake_of_module():
    with closing(FakeTriton()) as triton:
        yield triton


@pytest.fixture
def fake(fake_of_module):
    """A fake Triton that answers with two plates, until a test sets another `reply`."""
    fake_of_module.reply = lambda _: outputs()
    fake_of_module.photos.clear()
    fake_of_module.cancelled = threading.Semaphore(0)
    return fake_of_module


@pytest.fixture(scope="module")
def client_of_module(fake_of_module):
    with running_gateway(fake_of_module, max_bytes=100_000, ready_max_age_s=0.2) as client:
        yield client


@pytest.fixture
def client(request, fake):
    """A client of a gateway with the fake Triton: with the settings marked, or small limits."""
    marked = request.node.get_closest_marker("settings")
    if marked is None:
        yield request.getfixturevalue("client_of_module")
        return
    with running_gateway(fake, **marked.kwargs) as client:
        yield client


@pytest.fixture
def store(tmp_path):
    """An empty database of passes."""
    return store_of(tmp_path)


@pytest.fixture
def no_tracebacks(caplog):
    """Fail the test if uvicorn or asyncio logs an error."""
    yield
    # Here caplog.records are those of the teardown, during which the gateways stop.
    records = caplog.get_records("call") + caplog.records
    assert not [record for record in records if record.levelno >= logging.ERROR]


@pytest.fixture
def run(capsys):
    """Run a command in the tests' process; return its exit status, stdout and stderr."""

    def run(*words):
        try:
            status = cli.main([str(word) for word in words])
        except SystemExit as done:  # raised by argparse
            status = int(done.code or 0)
        shown = capsys.readouterr()
        return CompletedProcess(words, status, shown.out, shown.err)

    return run
