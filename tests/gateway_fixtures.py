"""Gateways for tests: in this process over a fake Triton, and the real one over a real Triton."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import fake_triton
import httpx
import pytest
import uvicorn
from fake_triton import FakeTriton
from gateway_client import settings_for

from api.edge.protocol import server_config
from api.main import create_app
from api.settings import Settings
from plates.serving.running import running_service


@contextmanager
def running_gateway(settings: Settings) -> Iterator[httpx.Client]:
    """Serve the application in a thread and hand out a client for it."""
    settings = settings.model_copy(update={"port": 0})
    server = uvicorn.Server(server_config(create_app(settings), settings))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise RuntimeError("the gateway did not start")
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(10)


class Served(NamedTuple):
    """A running `plates serve`."""

    url: str
    pid: int


@contextmanager
def serving(log: Path, **environment: str) -> Iterator[Served]:
    """Run `plates serve` on a free port and stop it as an operator would.

    Args:
        log: Where its stderr goes.
        environment: Settings, with their prefix.

    Yields:
        Where it listens, and its process.
    """
    with running_service(environment, log) as running:
        yield Served(running.url, running.process.pid)


@pytest.fixture(scope="session")
def gateway_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The real gateway: PLATES_URL, or a process of our own before the tests' Triton."""
    url = os.environ.get("PLATES_URL")
    if url:
        yield url.rstrip("/")
        return
    triton = request.getfixturevalue("triton")
    log = tmp_path_factory.mktemp("gateway") / "stderr.log"
    with serving(log, PLATES_TRITON_URL=triton.grpc_url) as served:
        yield served.url


@pytest.fixture(scope="session")
def gateway(gateway_url: str) -> Iterator[httpx.Client]:
    """A client of the real gateway."""
    with httpx.Client(base_url=gateway_url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def fake_of_module() -> Iterator[FakeTriton]:
    triton = FakeTriton()
    yield triton
    triton.stop()


@pytest.fixture
def fake(fake_of_module: FakeTriton) -> FakeTriton:
    """A Triton that answers with two plates, until a test gives it another reply."""
    fake_of_module.reply = lambda _: fake_triton.outputs()
    fake_of_module.photos.clear()
    fake_of_module.cancelled = threading.Semaphore(0)
    return fake_of_module


@pytest.fixture(scope="module")
def client(fake_of_module: FakeTriton) -> Iterator[httpx.Client]:
    """A client of a gateway in this process, with small limits, before the fake Triton."""
    settings = settings_for(fake_of_module, max_bytes=100_000, ready_max_age_s=0.2)
    with running_gateway(settings) as client:
        yield client


@pytest.fixture
def no_tracebacks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Neither uvicorn nor asyncio was surprised."""
    yield
    # Not `records`: at this point those are of the teardown.
    records = caplog.get_records("call")
    assert not [record for record in records if record.levelno >= logging.ERROR]
