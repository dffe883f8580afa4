"""New model versions under load, and restricted APIs, with a real Triton and the real models.

Most tests share one service: it gets a good version, then a damaged one, then the good version is
removed, and one of its processes is killed meanwhile.
"""

import contextlib
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from serving_support import add_version, remove_version
from support import REPOSITORY, SCENE_TEXT, processes_below, wait_until
from tritonclient import grpc as triton_grpc
from tritonclient import http as triton_http
from tritonclient.utils import InferenceServerException

from api.status import Status, read_status
from plate_models.release import DEFAULT_GOLDEN
from plates.benchmarks.cameras import free_port
from plates.serving.client import KEY_HEADER, TritonHttp
from plates.serving.errors import RequestError
from plates.serving.running import running_service
from plates.serving.triton import shared_memory

pytestmark = [pytest.mark.live, pytest.mark.control]

CLIENTS = 2
# Clients pause: under full load two cores would need minutes to load another version.
PAUSE_S = 0.4
PATIENCE_S = 120


@dataclass
class Service:
    """A service whose clients send the golden photo and check that it is ready."""

    url: str
    triton_url: str
    folder: Path
    repository: Path
    pid: int
    # The answers: status, the version that read the photo, the first text.
    answers: list[tuple[int, str, str]] = field(default_factory=list)
    # Statuses other than 200 of the checks whether the service and Triton are ready.
    unready: list[int] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def send_photos(self):
        headers = {"Content-Type": "image/jpeg"}
        with httpx.Client(timeout=60) as client:
            while not self.ended.wait(PAUSE_S):
                url = f"{self.url}/v1/plates"
                answer = client.post(url, content=DEFAULT_GOLDEN.read_bytes(), headers=headers)
                document = answer.json()
                texts = [plate["text"] for plate in document.get("plates", [])]
                version = document.get("model", {}).get("version", "")
                self.answers.append((answer.status_code, version, "".join(texts[:1])))
                for url in (f"{self.url}/readyz", f"{self.triton_url}/v2/health/ready"):
                    # Triton may be restarting.
                    with contextlib.suppress(httpx.TransportError):
                        self.unready += {client.get(url).status_code} - {200}

    @property
    def status(self):
        return read_status(self.folder / "status.json") or Status("starting")

    def wait_for(self, condition):
        """Wait for a condition and some more answers; return all answers since the call."""
        before = len(self.answers)
        wait_until(lambda: condition(self.status), PATIENCE_S)
        enough = len(self.answers) + 2 * CLIENTS
        wait_until(lambda: len(self.answers) > enough, PATIENCE_S)
        return self.answers[before:]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("versions")
    others = shutil.ignore_patterns("__pycache__", "[2-9]*")
    copy = shutil.copytree(REPOSITORY, folder / "models", ignore=others)
    port = free_port()
    settings = {"MODEL_REPOSITORY": copy, "STATUS_FILE": folder / "status.json"}
    settings |= {"TRITON_HTTP_PORT": port}
    environment = {f"PLATES_{name}": str(value) for name, value in settings.items()}
    with (
        running_service(environment, folder / "log") as (process, url),
        ThreadPoolExecutor(CLIENTS) as threads,
    ):
        service = Service(url, f"http://127.0.0.1:{port}", folder, copy, process.pid)
        wait_until(lambda: service.status.state == "ready", PATIENCE_S)
        for _ in range(CLIENTS):
            threads.submit(service.send_photos)
        try:
            wait_until(lambda: len(service.answers) > CLIENTS, PATIENCE_S)
            yield service
        finally:
            service.ended.set()


def test_a_good_version_takes_over_without_losing_a_photo(service):
    add_version(service.repository, 3)
    answers = service.wait_for(lambda status: status.release == 3)
    assert set(answers) == {(200, "1", SCENE_TEXT), (200, "3", SCENE_TEXT)}
    versions = [version for _, version, _ in answers]
    assert versions[0] == "1" and versions[-CLIENTS:] == ["3"] * CLIENTS
    assert service.unready == [] and service.status.refused == {}
    assert 'plates_release{version="3"} 1.0' in httpx.get(f"{service.url}/metrics").text


def test_a_damaged_version_is_refused_without_losing_a_photo(service):
    add_version(service.repository, 4, damaged="yolo")
    answers = service.wait_for(lambda status: "4" in status.refused)
    assert set(answers) == {(200, "3", SCENE_TEXT)}
    assert "yolo" in service.status.refused["4"]
    assert service.status.release == 3 and service.unready == []
    wait_until(lambda: not processes_below(service.pid, "/yolo/4/"), PATIENCE_S)
    remove_version(service.repository, 4)


def test_a_process_killed_during_the_return_to_an_older_version_is_restarted(service):
    remove_version(service.repository, 3)
    wait_until(lambda: processes_below(service.pid, "/yolo/1/"), PATIENCE_S)
    (old,) = processes_below(service.pid, "/plate_recognition/3/")
    old.kill()
    answers = service.wait_for(lambda status: status.release == 1 and status.state == "ready")
    assert {version for status, version, _ in answers[-CLIENTS:] if status == 200} == {"1"}
    assert {status for status, _, _ in answers} <= {200, 503}
    wait_until(lambda: httpx.get(f"{service.url}/readyz").status_code == 200, PATIENCE_S)


# A call of each restricted API that both of Triton's clients have.
CALLS = (
    *("get_model_repository_index", "get_system_shared_memory_status"),
    *("get_trace_settings", "get_log_settings"),
)
GRPC_HEADER = f"triton-grpc-protocol-{KEY_HEADER}"


def test_only_photos_health_and_metrics_need_no_key(triton):
    server = triton.embedded
    with (
        triton_grpc.InferenceServerClient(server.grpc_url) as grpc,
        triton_http.InferenceServerClient(server.http_url) as http,
    ):
        for call in CALLS:
            for client in (grpc, http):
                for headers in ({}, {KEY_HEADER: "guessed", GRPC_HEADER: "guessed"}):
                    with pytest.raises(InferenceServerException, match=r"(?i)restricted"):
                        getattr(client, call)(headers=headers)
        models = grpc.get_model_repository_index(headers={GRPC_HEADER: server.http.key}).models
    assert {model.name for model in models} >= {"yolo", "stn", "lprnet", "plate_recognition"}
    assert server.http.key and server.http.key not in repr(server.http)
    client = TritonHttp(server.http_url)
    assert client.is_ready()
    assert client.plates(DEFAULT_GOLDEN.read_bytes(), timeout_s=30)
    with pytest.raises(RequestError, match="restricted") as raised:
        client.unload("yolo")
    assert raised.value.status == 403
    metrics = httpx.get(f"http://{server.metrics_url}/metrics", timeout=10).text
    assert "nv_inference_request_success" in metrics
    server.tidy()  # The healer calls it regularly.
    regions = shared_memory(server.shm_prefix)
    assert regions and not any(path.stat().st_mode & 0o077 for path in regions)
