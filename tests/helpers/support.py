"""Helpers for tests in several folders: programs, photos, Tritons and gateways."""

import errno
import os
import resource
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import uvicorn
from photo_files import GOOD

from api.edge.protocol import GatewayConfig
from api.errors import KINDS
from api.main import create_app
from api.settings import Settings
from plate_models.training.labels import load_labels
from plates.serving.child import python
from plates.serving.triton import EmbeddedTriton

ROOT = Path(__file__).resolve().parents[2]
# The exported models; the variable names another folder while weights are being trained.
REPOSITORY = Path(os.environ.get("PLATES_MODEL_REPOSITORY") or ROOT / "model_repository")
# Variables that are set and name a server that the tests did not start.
ELSEWHERE = tuple(name for name in ("PLATES_URL", "PLATES_TRITON_URL") if os.environ.get(name))
SAMPLES = ROOT / "tests" / "samples"
SCENE = SAMPLES / "green_car.jpg"
SCENE_TEXT = "X556XM750"
PHOTO = GOOD["jpeg"]
PLATES = python("plates.cli.main")
STATUS = {slug: kind.status for slug, kind in KINDS.items()}


def wait_until(condition, seconds=30):
    """Poll until the condition is true; fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition is false after {seconds} s"
        time.sleep(0.02)


def is_alive(pid):
    """Whether a process runs; a zombie with living threads does: they still hold its ports."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    except psutil.NoSuchProcess:
        return False


def processes_below(pid, *words):
    """The processes below one, parents before their children, whose command has these words."""
    commands = {p: " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])}
    below = psutil.Process(pid).children(recursive=True)
    return [p for p in below if all(word in commands.get(p, "") for word in words)]


def forbid(monkeypatch, function, name):
    """Let a function of `os` refuse paths that contain `name`, as if another user owned them."""
    allowed = getattr(os, function)

    def refuse(path, *arguments, **options):
        if name in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return allowed(path, *arguments, **options)

    monkeypatch.setattr(os, function, refuse)


def write_files(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def read_samples():
    """The labelled plates of each sample photo, by the photo's file name."""
    return {photo.path.name: photo.plates for photo in load_labels(SAMPLES)}


def plates(*words, **environment):
    options = {"cwd": ROOT, "env": os.environ | environment, "timeout": 180}
    return subprocess.run([*PLATES, *words], capture_output=True, text=True, **options)


def post_raw(client, photo, headers=None, **parameters):
    headers = {"content-type": "image/jpeg"} | (headers or {})
    return client.post("/v1/plates", content=photo, headers=headers, params=parameters)


def post_form(client, photo, **fields):
    files = {"image": ("photo.jpg", photo)}
    return client.post("/v1/plates", files=files, data={k: str(v) for k, v in fields.items()})


def number(client, sample):
    """The sum of all samples in /metrics that begin with `sample`."""
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(sample))


def embedded_triton(repository=REPOSITORY, parent=None, **settings):
    """A Triton with these settings, which are not validated."""
    settings = Settings.model_construct(model_repository=repository, **settings)
    return EmbeddedTriton(settings, parent)


@contextmanager
def files_limited_to(size):
    """Every write of this process beyond so many bytes of a file fails, as on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def running_triton(*args, **settings):
    """An embedded Triton that is ready; it stops when the context ends."""
    server = embedded_triton(*args, **settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def assert_problem(response, status, slug):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["type"] == ("about:blank" if slug is None else f"/problems/{slug}")
    assert document["title"]
    assert document["detail"]
    assert document["instance"] == "/requests/" + response.headers["x-request-id"]
    if status in (429, 503):
        assert int(response.headers["retry-after"]) >= 1
    return document


@contextmanager
def running_gateway(triton, *routers, **options):
    """Serve the gateway in a thread and yield a client of it; the options are settings."""
    url = triton if isinstance(triton, str) else f"grpc://127.0.0.1:{triton.port}"
    settings = Settings(triton_url=url, port=0, **options)
    server = uvicorn.Server(GatewayConfig(create_app(settings, routers), settings))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        assert server.started, "the gateway did not start"
        port = server.servers[0].sockets[0].getsockname()[1]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(10)


def make_certificate(folder, names, stem="cert", protection=("-nodes",)):
    """A self-signed certificate for names such as "DNS:a.example,IP:127.0.0.1", and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate, key = folder / f"{stem}.pem", folder / f"{stem}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", f"subjectAltName={names}"]
    command += [*protection, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def labelled_set(folder, *names):
    """Lay samples out as a labelled set, whose labels don't tell the plates' lines."""
    head, *rows = (SAMPLES / "plates.csv").read_text("utf-8").splitlines()
    kept = [head, *(row for row in rows if row.startswith(names))]
    table = "".join(row.rpartition(",")[0] + "\n" for row in kept)
    files = {f"images/{name}": (SAMPLES / name).read_bytes() for name in names}
    return write_files(folder, files | {"plates.csv": table.encode()})
