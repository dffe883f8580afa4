"""The cameras' routes, of a real gateway with a real database."""

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client, Listener
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
from camera_events import a_pass, store_of
from photo_files import encode
from support import SCENE, running_gateway, wait_until

from plate_models.spec import Limits
from plates.cameras import http, state_file, worker
from plates.cameras.http import make_router
from plates.cameras.settings import CamerasFile
from plates.cameras.sources import PushedFrames

PHOTO = SCENE.read_bytes()
GATE = {"name": "gate", "source": "rtsp://u:secret@host/1"}
FILE = CamerasFile.model_validate({"cameras": [GATE, {"name": "door"}]})


@pytest.fixture
def client(fake, store, tmp_path, monkeypatch):
    # Frames don't wait in the queue of photos.
    monkeypatch.setattr("api.reading.Admission", lambda *_: None)
    with running_gateway(fake, make_router(FILE, store, tmp_path)) as client:
        yield client


def test_searches_are_answered_page_by_page(client, store):
    for number, text in enumerate(["A001AA77", "B002BB77", "A003AA99"]):
        store.add(a_pass(number, id=f"p{number}", text=text), None, ())
    query = {"text": "A*", "camera": "gate-1", "since": "2026-01-31T12:00:00Z", "limit": 1}
    query |= {"until": "2026-01-31T12:00:03Z"}
    page = client.get("/v1/passes", params=query).json()
    [latest] = page["passes"]
    assert (latest["id"], latest["time"]["first"]) == ("p2", "2026-01-31T12:00:02.000Z")
    following = client.get("/v1/passes", params=query | {"before": page["next"]}).json()
    assert [each["id"] for each in following["passes"]] == ["p0"]
    # PostgreSQL would refuse "\0", and with some encodings "ü".
    for name, value in ("since", "yesterday"), ("text", "A\0*"), ("camera", "\0"), ("camera", "ü"):
        refused = client.get("/v1/passes", params={name: value})
        assert refused.status_code == 422 and name in refused.text


def test_a_picture_is_returned_if_it_is_stored(client, store):
    store.add(a_pass(kind="updated", id="with"), b"first", ())
    store.add(a_pass(revision=2, id="with"), b"jpeg", ())
    store.add(a_pass(id="without"), None, ())
    answer = client.get("/v1/passes/with/picture")
    assert answer.headers["cache-control"] == "no-store"
    assert (answer.content, answer.headers["content-type"]) == (b"jpeg", "image/jpeg")
    assert client.get("/v1/passes/without/picture").status_code == 404
    assert client.get("/v1/passes/never/picture").status_code == 404
    assert client.get("/v1/passes/%00/picture").status_code == 422


def next_event(lines):
    """Read the next event of a stream; returns its number, type and data."""
    fields = {}
    while "data" not in fields:
        fields = dict(line.split(": ", 1) for line in iter(lambda: next(lines), ""))
    return int(fields["id"]), fields["event"], json.loads(fields["data"])


def test_events_are_streamed_and_resume_after_the_last_event_id(client, store, tmp_path):
    store.add(a_pass(id="before"), None, ())
    with client.stream("GET", "/v1/events?camera=") as answer:
        assert answer.headers["x-accel-buffering"] == "no"  # nginx would buffer them
        lines = answer.iter_lines()
        assert next(lines) == ": listening"
        store.add(a_pass(kind="updated", id="p"), None, ())
        store.add(a_pass(revision=2, id="p"), None, ())
        first, second = next_event(lines), next_event(lines)
    assert [first[1], second[1]] == ["pass.updated", "pass.ended"]
    assert first[2]["id"] == second[2]["id"] == "p"
    with client.stream("GET", "/v1/events", headers={"Last-Event-ID": str(first[0])}) as answer:
        assert next_event(answer.iter_lines()) == second
    with client.stream("GET", "/v1/events", headers={"Last-Event-ID": "5000"}) as answer:
        lines = answer.iter_lines()  # a number of an earlier database
        assert next(lines) == ": listening"
        store.add(a_pass(id="new"), None, ())
        assert next_event(lines)[2]["id"] == "new"
        (tmp_path / "plates.db").unlink()  # A new database replaces it;
        assert [next(lines) for _ in range(12)]  # its numbers start again at 1.
        assert all(store.add(a_pass(id=str(number)), None, ()) for number in range(9))
        assert next_event(lines)[2]["id"] == "0"
    store.add(a_pass(id="other", camera="door"), None, ())
    with client.stream("GET", "/v1/events?camera=door", headers={"Last-Event-ID": "0"}) as answer:
        assert next_event(answer.iter_lines())[2]["id"] == "other"
    with client.stream("GET", "/v1/events?camera=nowhere") as answer:
        assert answer.status_code == 404
    assert client.head("/v1/events").headers["content-type"].startswith("text/event-stream")
    assert client.get("/v1/cameras").status_code == 200  # on the same connection


def test_a_stop_ends_streams_of_events_without_an_error(fake, store, tmp_path, caplog):
    with running_gateway(fake, make_router(FILE, store, tmp_path)) as client:
        viewer = socket.create_connection((client.base_url.host, client.base_url.port))
        viewer.sendall(b"GET /v1/events HTTP/1.1\r\nHost: gate\r\n\r\n")
        wait_until(lambda: b"listening" in viewer.recv(2**16))
    viewer.close()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_subscribers_share_one_look_into_the_database(store, monkeypatch):
    async def listen(polls):
        streams = [http._stream(store, polls, 0, "") for _ in range(20)]
        assert {await anext(each) for each in streams} == {": listening\n\n"}
        first, *others = [asyncio.ensure_future(anext(each)) for each in streams]
        await asyncio.sleep(0.1)
        first.cancel()  # A subscriber that leaves must not end the others' poll.
        return await asyncio.gather(*others)

    store.add(a_pass(), None, ())
    monkeypatch.setattr(store, "events_after", find := Mock(wraps=store.events_after))
    assert {event[:5] for event in asyncio.run(listen({}))} == {"id: 1"} and find.call_count == 1


def test_camera_states_contain_no_password_of_a_source(client, tmp_path):
    state_file(tmp_path, "gate").write_text('{"status": "live", "frames_dropped": 3}')
    answer = client.get("/v1/cameras")
    gate, door = answer.json()["cameras"]
    assert gate["state"]["frames_dropped"] == 3 and 0 <= gate["updated_s"] < 5
    assert (gate["pushed"], door["pushed"], door["state"]) == (False, True, None)
    assert "secret" not in answer.text


def test_plates_are_shown_only_to_clients_with_a_token(fake, store, tmp_path):
    with running_gateway(fake, make_router(FILE, store, tmp_path), tokens="abc") as client:
        for path in ("cameras", "passes", "passes/p/picture", "events"):
            assert client.get(f"/v1/{path}").status_code == 401, path
        assert client.get("/readyz").status_code != 401
        paths = client.get("/openapi.json").json()["paths"]
        for path in ("cameras", "cameras/{camera}/frames", "passes", "events"):
            assert all("security" in each for each in paths[f"/v1/{path}"].values()), path
        [push] = paths["/v1/cameras/{camera}/frames"].values()
        assert "content" not in push["responses"]["202"] and {"404", "409"} <= {*push["responses"]}
        assert client.get("/v1/passes", headers={"Authorization": "Bearer abc"}).status_code == 200


def push(client, camera, photo=PHOTO, **query):
    headers, url = {"content-type": "image/jpeg"}, f"/v1/cameras/{camera}/frames"
    return client.post(url, content=photo, headers=headers, params=query)


def test_a_pushed_frame_reaches_the_cameras_process(client, tmp_path, monkeypatch):
    monkeypatch.setattr(http, "_ANSWER_S", 0.2)
    with Listener(str(tmp_path / "door"), "AF_UNIX"):  # a camera's process that is busy
        assert push(client, "door", PHOTO[:9000]).status_code == 503
    monkeypatch.undo()
    with Listener(str(tmp_path / "door"), "AF_UNIX") as killed:  # after it got the frame
        threading.Thread(target=lambda: killed.accept().recv_bytes()).start()
        assert push(client, "door").status_code == 503
    with socket.socket(socket.AF_UNIX) as left:  # by a camera's process that was killed
        left.bind(str(tmp_path / "door"))
    statuses = [push(client, name).status_code for name in ("door", "gate", "nowhere")]
    assert statuses == [503, 409, 404]
    frames = PushedFrames()
    work = tmp_path / "door", frames, Limits(max_pixels=4 * 10**6)
    threading.Thread(target=worker.receive, args=work, daemon=True).start()
    wait_until(lambda: push(client, "door").status_code == 202)
    Client(str(tmp_path / "door"), "AF_UNIX").close()  # like a gateway that was killed
    assert push(client, "door", captured="2026-01-31T12:00:01Z").status_code == 202
    frame = next(frames.frames())
    assert frame.captured == 1769860801 and np.array_equal(frame.image, cv2.imread(str(SCENE)))
    assert push(client, "door", captured="9999-01-01T00:00:00Z").status_code == 422
    refused = push(client, "door", PHOTO[:9000])
    assert refused.status_code == 422 and "truncated" in refused.json()["detail"]
    large = encode(np.zeros((2001, 2000, 3), np.uint8), "PNG")
    assert push(client, "door", large).status_code == 413


def test_frames_pushed_too_fast_are_refused_and_delay_no_other_request(client, store, monkeypatch):
    taken = threading.Event()
    monkeypatch.setattr(http, "_push", lambda *_: "" if taken.wait(20) else "not taken")
    with client.stream("GET", "/v1/events") as answer, ThreadPoolExecutor(20) as pool:
        pushed = [pool.submit(push, client, "door") for _ in range(20)]
        wait_until(lambda: sum(each.done() for each in pushed) == 15)
        store.add(a_pass(id="meanwhile"), None, ())
        assert next_event(answer.iter_lines())[2]["id"] == "meanwhile"
        taken.set()
    assert sorted(each.result().status_code for each in pushed) == [202] * 5 + [429] * 15


def test_an_answer_names_a_database_that_is_away(fake, tmp_path):
    store = store_of("postgresql://nobody@127.0.0.1:1/none")
    with running_gateway(fake, make_router(FILE, store, tmp_path)) as client:
        began = time.monotonic()
        answer = client.get("/v1/passes")
        assert answer.status_code == 503 and "database" in answer.json()["detail"]
        assert time.monotonic() - began < 15
