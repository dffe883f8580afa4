"""Cameras with a real Triton: frames are read as in this process; no pass is lost by a kill."""

import json
from contextlib import contextmanager
from pathlib import Path

import cv2
import httpx
import numpy as np
import pytest
from camera_events import SIGNING_KEY, a_pass, store_of
from support import SAMPLES, processes_below, wait_until

from api.settings import Settings
from plate_models.engines.nets import load_nets
from plates.benchmarks.cameras import rtsp_server, write_stream
from plates.cameras.fusion import Reader
from plates.cameras.recognizer import TritonRecognizer, seen_plates
from plates.serving.running import running_service
from plates.serving.triton import shared_memory

pytestmark = [pytest.mark.live, pytest.mark.control]
TEXT, PATIENCE_S = "E333CT61", 60


def test_frames_are_read_alike_through_shared_memory_and_over_the_network(triton):
    server = triton.embedded
    nets, before = load_nets(), shared_memory("psm_")  # as Python names its segments
    settings = Settings(triton_url=server.grpc_url)
    recognizers = [TritonRecognizer(settings, "gate", key) for key in (server.http.key, "")]
    lines = set()
    scenes = [cv2.imread(str(path)) for path in sorted(SAMPLES.glob("*.jpg"))]
    for image in [*scenes, np.full((300, 400, 3), 127, np.uint8)]:  # the last without plates
        here = nets.read(np.ascontiguousarray(image[..., ::-1]), still=False)
        lines |= {plate.lines for plate in here}
        for recognizer in recognizers:
            there = recognizer.read(image)
            assert [plate.text for plate in there] == [plate.reading.text for plate in here]
            for one, other, again in zip(there, here, seen_plates(here, image), strict=True):
                assert one.candidates[0][0] == other.reading.best
                assert one.score == pytest.approx(other.reading.score, abs=1e-4)
                np.testing.assert_allclose(one.box, other.box, atol=0.5)
                steps = other.log_probs.shape[1]
                np.testing.assert_allclose(one.log_probs[:, :steps], other.log_probs, atol=0.05)
                np.testing.assert_allclose(one.crop, other.crop, atol=2)
                assert one.evidence.lines == again.evidence.lines == other.lines
                assert one.evidence.ground == pytest.approx(again.evidence.ground, abs=0.02)
                assert one.evidence[2:] == pytest.approx(again.evidence[2:], abs=0.02)
    assert lines == {1, 2}
    # Torch would take 200 MB of plate_recognition's process.
    libraries = {file.path for stub in server.stubs for file in stub.memory_maps()}
    assert any("cv2" in path for path in libraries) and not any("torch" in p for p in libraries)
    # A segment is unlinked as soon as both processes map it, so that a kill leaves nothing.
    assert shared_memory("psm_") == before
    config, found = nets.config, recognizers[0].reader
    assert found.model.weights.startswith("sha256:")
    # This comes from Triton, which may be on another machine, not from the model repository.
    assert found == Reader(config.grammar, config.calibration, config.specs.recognizer, found.model)


@pytest.fixture
def camera(tmp_path_factory):
    """The URL of a stream in which a car crosses the picture repeatedly; a pass each time."""
    folder = tmp_path_factory.mktemp("rtsp")
    write_stream(folder / "a.mp4", 8, cars=1, every_s=8)
    with rtsp_server(folder) as port:
        yield f"rtsp://viewer:secret@127.0.0.1:{port}/a.mp4"


@contextmanager
def service(folder, camera, receiver):
    (folder / "residents.csv").write_text(f"plate\n{TEXT}\n")
    (folder / "cameras.toml").write_text(f"""
        storage = {{texts = true, pictures = true}}
        lists = {{residents = "residents.csv"}}
        [[targets]]
        name = "hook"
        kind = "webhook"
        url = "{receiver}"
        secret = "{SIGNING_KEY}"
        private_addresses = true
        events = ["pass.updated", "pass.ended"]
        [[cameras]]
        name = "gate"
        source = "{camera}"
        fps = 8
        [[cameras]]
        name = "yard"
        crop = [0, 0.5, 1, 1]
    """)
    store = store_of(folder)
    store.add(a_pass(kind="updated", camera="gone"), None, [])  # of a camera that was removed
    settings = {"PLATES_CAMERAS": f"{folder}/cameras.toml"}
    with (
        running_service(settings, folder / "log") as (supervisor, url),
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        yield client, supervisor.pid
    # The stop ends all passes: none is left for the next start.
    assert store.running() == []
    log = (folder / "log").read_text()
    assert "secret@" not in log and TEXT not in log


def test_each_crossing_is_one_event_and_killed_processes_lose_none(tmp_path, camera, receiver):
    def events():
        return [json.loads(taken.body) for taken in receiver.requests if taken.status == 200]

    def ended():
        return [event for event in events() if event["type"] == "pass.ended"]

    with service(tmp_path, camera, receiver.url) as (client, supervisor):

        def wait_for_event():
            before = len(ended())
            wait_until(lambda: len(ended()) > before, PATIENCE_S)

        wait_for_event()
        event = ended()[0]
        assert (event["text"], event["camera"], event["time"]["source"]) == (TEXT, "gate", "rtcp")
        assert event["match"]["list"] == "residents" and event["match"]["probability"] > 0.9
        updates = [e for e in events() if e["id"] == event["id"]]
        assert updates[0]["type"] == "pass.updated" and updates[0]["revision"] == 1
        gate, yard = client.get("/v1/cameras").json()["cameras"]
        assert (gate["state"]["status"], yard["pushed"]) == ("live", True)
        picture = client.get(f"/v1/passes/{event['id']}/picture")
        assert picture.headers["content-type"] == "image/jpeg"
        (tmp_path / "cameras.toml").write_text("[")  # It is read only at the start.
        # Two independent processes at a time, to save time: a pass takes ten seconds.
        for victims in (
            (["--camera", "gate"], ["plates.serving.gateway"]),
            (["tritonserver"], ["--deliver"]),
        ):
            # Both are found before either is killed: a zombie has no command.
            for victim, *_ in [processes_below(supervisor, *words) for words in victims]:
                victim.kill()
            wait_for_event()
            # Triton no longer maps the shared memory of the killed process's frames.
            triton, *_ = processes_below(supervisor, "tritonserver")
            assert Path(f"/proc/{triton.pid}/maps").read_text().count("psm_") == 1
        receiver.status, before = 503, len(ended())

        def count_stored():
            return len(client.get("/v1/passes", params={"text": "E333*"}).json()["passes"])

        stored_before = count_stored()
        wait_until(lambda: count_stored() >= stored_before + 2, PATIENCE_S)
        assert len(ended()) == before
        receiver.status = 200
        wait_until(lambda: len(ended()) >= before + 2, PATIENCE_S)
        # Pushed frames become passes, too.
        photo = (SAMPLES / "green_car.jpg").read_bytes()
        assert client.post("/v1/cameras/yard/frames", files={"image": photo}).status_code == 202
        wait_until(lambda: any(e["camera"] == "yard" for e in ended()), PATIENCE_S)
        [of_yard] = [event for event in ended() if event["camera"] == "yard"]
        assert of_yard["best"]["box"][3] < 200  # in the cropped photo; 491 in the whole one
        passes = client.get("/v1/passes").json()["passes"]
        stored = {e["id"] for e in passes if e["type"] == "pass.ended" and e["camera"] != "gone"}
        wait_until(lambda: stored <= {e["id"] for e in ended()}, PATIENCE_S)
    assert {event["text"] for event in ended()} <= {TEXT, "X556XM750", ""}
    assert all(event["text"] for event in ended() if event["readable"])
    assert len({event["id"] for event in ended()}) == len({json.dumps(event) for event in ended()})
