"""Model versions changed under load, through a real Triton and the gateway before it.

One service lives through it all: it starts with a newest version that misreads, gets a good
one, a damaged one, loses the good one again, and one of its processes is killed on the way.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import pytest
from support import wait_until
from version_cases import add_version, copy_repository, remove_version, rotate_alphabet, truncate

from api.readiness import canary_photo
from api.status import Status, read_status
from plates.serving import processes
from plates.serving.running import running_service

pytestmark = [pytest.mark.live, pytest.mark.control]

SENDERS = 3
# Two cores that read all the time would need minutes to load anything beside.
PAUSE_S = 0.4
PATIENCE_S = 120


@dataclass
class Load:
    """A few who send the golden photo, one after the other, and one who asks whether all is well.

    Attributes:
        answers: Each answer's status and, where it read the photo, its version and texts.
        unready: Answers that were not 200 to whether the service, or Triton, is ready; 0: none.
    """

    url: str
    triton_url: str
    answers: list[tuple[int, str, list[str]]] = field(default_factory=list)
    unready: list[int] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def send(self) -> None:
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.ended.is_set():
                answer = client.post(
                    "/v1/plates", content=canary_photo(), headers={"Content-Type": "image/jpeg"}
                )
                document = answer.json()
                texts = [plate["text"] for plate in document.get("plates", [])]
                version = document.get("model", {}).get("version", "")
                self.answers.append((answer.status_code, version, texts))
                self.ended.wait(PAUSE_S)

    def ask(self) -> None:
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while not self.ended.wait(0.2):
                for path in ("/readyz", f"{self.triton_url}/v2/health/ready"):
                    try:
                        status = client.get(path).status_code
                    except httpx.TransportError:  # Triton is being restarted
                        status = 0
                    if status != 200:
                        self.unready.append(status)


@dataclass
class Service:
    """The service and what is known of it.

    Attributes:
        load: What senders see.
        repository: What it serves.
        started: Its status when it had started.
    """

    load: Load
    repository: Path
    status_file: Path
    log: Path
    pid: int
    started: Status | None = None

    @property
    def status(self) -> Status:
        return read_status(self.status_file) or Status("starting")

    def wait_for(self, condition: Callable[[Status], bool]) -> list[tuple[int, str, list[str]]]:
        """Wait for it, and for a few photos more; return all answers meanwhile."""
        before = len(self.load.answers)
        wait_until(lambda: condition(self.status), PATIENCE_S)
        there = len(self.load.answers)
        wait_until(lambda: len(self.load.answers) > there + 2 * SENDERS, PATIENCE_S)
        return self.load.answers[before:]

    def stubs(self, part_of_path: str) -> list[int]:
        below = {process.pid for process in psutil.Process(self.pid).children(recursive=True)}
        return [p.pid for p in processes.mentioning(part_of_path) if p.pid in below]


@pytest.fixture(scope="module")
def service(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("versions")
    copy = copy_repository(repository, folder / "models")
    add_version(copy, 2, rotate_alphabet(2))
    status_file, log = folder / "status.json", folder / "log"
    settings = {"PLATES_MODEL_REPOSITORY": str(copy), "PLATES_STATUS_FILE": str(status_file)}
    with running_service(settings, log) as running:
        assert running.triton is not None
        load = Load(running.url, f"http://{running.triton[1]}")
        service = Service(load, copy, status_file, log, running.process.pid)
        wait_until(lambda: service.status.state == "ready", PATIENCE_S)
        service.started = service.status
        threads = [threading.Thread(target=load.send) for _ in range(SENDERS)]
        threads.append(threading.Thread(target=load.ask))
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: len(load.answers) > SENDERS, PATIENCE_S)
            yield service
        finally:
            load.ended.set()
            for thread in threads:
                thread.join(PATIENCE_S)


def statuses(answers: list[tuple[int, str, list[str]]]) -> set[int]:
    return {status for status, _, _ in answers}


def test_a_newest_version_that_misreads_does_not_keep_the_service_from_starting(
    service: Service,
) -> None:
    assert service.started is not None and service.started.release == 1
    assert "must read P593OO977" in service.started.refused["2"]
    status, version, texts = service.load.answers[0]
    assert (status, version, texts[0]) == (200, "1", "P593OO977")
    assert (
        "Model version 2 is refused, trying an older one: on its golden" in service.log.read_text()
    )


def test_a_good_version_takes_over_without_a_photo_lost(service: Service) -> None:
    remove_version(service.repository, 2)
    add_version(service.repository, 3)
    answers = service.wait_for(lambda status: status.release == 3)
    assert statuses(answers) == {200}
    assert {texts[0] for _, _, texts in answers} == {"P593OO977"}
    versions = [version for _, version, _ in answers]
    assert versions[0] == "1" and versions[-1] == "3" and set(versions) == {"1", "3"}
    assert versions[-SENDERS:] == ["3"] * SENDERS
    assert service.load.unready == [] and service.status.refused == {}
    metrics = httpx.get(f"{service.load.url}/metrics").text
    assert 'plates_release{version="3"} 1.0' in metrics


@pytest.mark.parametrize(
    ("version", "spoil", "reason"),
    [(4, rotate_alphabet(4), "must read P593OO977"), (5, truncate("yolo", 5), "yolo")],
    ids=["misreads", "truncated"],
)
def test_a_bad_version_is_refused_without_a_photo_lost(
    service: Service, version: int, spoil: Callable[[Path], None], reason: str
) -> None:
    add_version(service.repository, version, spoil)
    answers = service.wait_for(lambda status: str(version) in status.refused)
    assert {(status, found) for status, found, _ in answers} == {(200, "3")}
    assert reason in service.status.refused[str(version)]
    assert service.status.release == 3 and service.load.unready == []
    metrics = httpx.get(f"{service.load.url}/metrics").text
    assert f'plates_release_refused{{version="{version}"}} 1.0' in metrics
    remove_version(service.repository, version)
    wait_until(lambda: not service.stubs(f"/yolo/{version}/"), PATIENCE_S)


def test_a_process_killed_in_the_midst_of_going_back_is_healed(service: Service) -> None:
    remove_version(service.repository, 3)
    wait_until(lambda: service.stubs("/yolo/1/"), PATIENCE_S)
    (old,) = service.stubs("/plate_recognition/3/")
    os.kill(old, signal.SIGKILL)
    answers = service.wait_for(lambda status: status.release == 1 and status.state == "ready")
    assert {version for status, version, _ in answers[-SENDERS:] if status == 200} == {"1"}
    assert statuses(answers) <= {200, 503}
    with httpx.Client(base_url=service.load.url, timeout=60) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200, PATIENCE_S)
    before = len(service.load.answers)
    wait_until(lambda: len(service.load.answers) > before + SENDERS, PATIENCE_S)
    assert statuses(service.load.answers[before:]) == {200}
