"""Delivery to real receivers: HTTP servers, the broker mosquitto, files."""

import csv
import email
import json
import socket
import subprocess
import threading
import time
from ast import literal_eval
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest
from camera_events import SIGNING_KEY, a_pass, search
from paho.mqtt import subscribe
from standardwebhooks import Webhook
from support import files_limited_to, make_certificate, wait_until

from plates.benchmarks.cameras import free_port
from plates.cameras.delivery import NotDelivered, deliver, targets_of
from plates.cameras.settings import CamerasFile
from plates.cameras.store import Delivery, StoreUnavailable

WEBHOOK = {"name": "hook", "kind": "webhook", "secret": SIGNING_KEY, "private_addresses": True}


@pytest.fixture(autouse=True)
def short_delays(monkeypatch):
    monkeypatch.setattr("plates.cameras.store._LONGEST_DELAY_S", 0.1)


@contextmanager
def delivering(store, *targets):
    """Deliver a store's events, or one if it has none, in the background; yields the targets."""
    names = [target["name"] for target in targets]
    if not store.last_seq():
        store.add(a_pass(), None, names)
    camera = {"name": "gate-1", "targets": names}
    file = CamerasFile.model_validate({"targets": targets, "cameras": [camera]})
    stop, built = threading.Event(), targets_of(file)
    thread = threading.Thread(target=deliver, args=(store, built, stop))
    thread.start()
    try:
        yield built
    finally:
        stop.set()
        thread.join()


def all_delivered(store, *targets):
    return lambda: not any(store.due(target, 1e10) for target in targets)


def test_webhooks_are_signed_and_retried_though_the_clock_is_set(store, receiver, monkeypatch):
    receiver.statuses, began = [500, 302, 410, 429], time.monotonic()
    monkeypatch.setattr("plates.cameras.delivery._PURGE_EVERY_S", 0.01)
    today, uptime = time.time, time.monotonic
    monkeypatch.setattr(time, "time", lambda: today() - 1.7e9)
    store.add(a_pass(kind="updated"), None, [])
    store.add(a_pass(revision=2), None, ["hook"])
    with delivering(store, WEBHOOK | {"url": receiver.url}) as built:
        wait_until(lambda: receiver.requests)
        monkeypatch.setattr(time, "time", today)  # Now both events are older than 30 days.
        wait_until(all_delivered(store, "hook"))
        assert time.monotonic() - began > 2, "the answer 429 asks for a pause of 2 seconds"
        monkeypatch.setattr(time, "monotonic", lambda: uptime() + 86_400)
        wait_until(lambda: not search(store))
    assert [request.path for request in receiver.requests] == ["/"] * 5, "a redirect was followed"
    assert {r.headers["webhook-id"] for r in receiver.requests} == {"0199-1-2-ended"}
    last = receiver.requests[-1]
    event = Webhook(SIGNING_KEY).verify(last.body, dict(last.headers))
    assert event["text"] == "X556XM750"
    assert event["time"]["first"] == "2026-01-31T12:00:01.000Z"
    receiver.statuses = [420]
    with pytest.raises(NotDelivered) as refused:
        built["hook"](Delivery(2, "hook", 0, "{}", None, 0.0), event)
    assert refused.value.pause_s == 30, "it asks for an hour"


def answer_names(monkeypatch, addresses_of, look_up=socket.getaddrinfo):
    """Resolve host names to the addresses that `addresses_of` returns."""

    def looked_up(host, *a, **k):
        return [found for each in addresses_of(host) for found in look_up(each, *a, **k)]

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)


@pytest.mark.parametrize(
    "host",  # The third one is 127.0.0.1, too.
    ["localhost", "[::1]", "2130706433", "[::ffff:7f00:1]", "169.254.169.254", "239.255.255.250"],
)
def test_private_addresses_are_refused_unless_allowed(store, receiver, caplog, host):
    url = f"http://user:hunter2@{host}:{receiver.server_port}/token-hunter2"
    with delivering(store, WEBHOOK | {"url": url, "private_addresses": False}):
        wait_until(lambda: "its address is private" in caplog.text)
    assert not receiver.requests
    assert "hunter2" not in caplog.text


def test_the_connection_goes_to_the_address_that_was_checked(store, monkeypatch):
    """An attacker's name server answers with a public address first, then with a private one."""
    answers = iter(["93.184.216.34"])
    answer_names(monkeypatch, lambda _: [next(answers, "127.0.0.1")])
    connect = Mock(side_effect=ConnectionRefusedError)
    monkeypatch.setattr(socket, "create_connection", connect)
    target = WEBHOOK | {"url": "http://rebinding.example:8000/", "private_addresses": False}
    with delivering(store, target):
        wait_until(lambda: store.due("hook", 1e10) and store.due("hook", 1e10)[0].attempts > 1)
    assert {each.args[0] for each in connect.call_args_list} == {("93.184.216.34", 8000)}


def test_an_event_is_sent_once_though_the_database_is_away(store, receiver, monkeypatch):
    calls = []
    for name in ("due", "delivered", "purge"):
        away_at_first = chain([StoreUnavailable] * 2, repeat(DEFAULT))
        calls.append(Mock(wraps=getattr(store, name), side_effect=away_at_first))
        monkeypatch.setattr(store, name, calls[-1])
    for name in ("_DATABASE_S", "_PURGE_EVERY_S"):
        monkeypatch.setattr(f"plates.cameras.delivery.{name}", 0.01)
    store.add(a_pass(), None, ["hook"])
    with delivering(store, WEBHOOK | {"url": receiver.url}):
        wait_until(lambda: min(call.call_count for call in calls) > 2)
        wait_until(all_delivered(store, "hook"))
    assert len(receiver.requests) == 1


def test_all_addresses_are_tried_and_certificates_are_checked(
    store, receiver, tmp_path, monkeypatch
):
    certificate, key = make_certificate(tmp_path, "DNS:hub.example")
    receiver.speak_tls(certificate, key)
    found = ["::1", "127.0.0.1"]  # The first one refuses.
    answer_names(monkeypatch, lambda host: found if host[-8:] == ".example" else [host])
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    right = WEBHOOK | {"name": "right", "url": f"https://hub.example:{receiver.server_port}/right"}
    wrong = WEBHOOK | {"name": "wrong", "url": f"https://other.example:{receiver.server_port}/"}
    with delivering(store, right, wrong):
        wait_until(all_delivered(store, "right"))
        wait_until(lambda: store.due("wrong", 1e10)[0].attempts)
    assert {request.path for request in receiver.requests} == {"/right"}
    assert receiver.requests[0].headers["host"] == f"hub.example:{receiver.server_port}"


def test_a_slow_target_does_not_delay_others(store, receiver, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("plates.cameras.delivery._TIMEOUT_S", 2)
    receiver.open.clear()
    # An unexpected error of one event does not delay the others either.
    error = ValueError("hunter2")
    monkeypatch.setattr("os.fsync", flush := Mock(side_effect=(error, *[None] * 9)))
    for number in range(5):
        store.add(a_pass(number), None, ["hook", "log"])
    log = {"name": "log", "kind": "jsonl", "path": tmp_path / "passes.jsonl"}
    with delivering(store, WEBHOOK | {"url": receiver.url}, log):
        wait_until(all_delivered(store, "log"))
        assert flush.call_count == 6, "an event is delivered when it is on the disk"
        time.sleep(2.4)  # An answer may take longer than _TIMEOUT_S.
        assert [owed.attempts for owed in store.due("hook", 1e10)] == [0] * 5
        receiver.open.set()
        wait_until(all_delivered(store, "hook"))
    assert "ValueError" in caplog.text and "hunter2" not in caplog.text
    ids = [json.loads(request.body)["id"] for request in receiver.requests]
    assert ids == [f"0199-{number}" for number in range(5)]


def test_new_events_precede_waiting_ones_which_follow_without_pauses(store, monkeypatch):
    monkeypatch.setattr("plates.cameras.delivery._POLL_S", 1)
    stop, sent, began = threading.Event(), [], time.monotonic()

    def send(delivery, _):
        sent.append(delivery.seq)
        if len(sent) == 1:
            store.add(a_pass(21), None, ["gate"])

    for number in range(20):
        store.add(a_pass(number), None, ["gate"])
    for delivery in store.due("gate", 0):
        store.failed(delivery, time.time() - 10)
    threading.Thread(target=deliver, args=(store, {"gate": send}, stop)).start()
    wait_until(lambda: len(sent) == 21)
    stop.set()
    assert sent == [1, 21, *range(2, 21)]
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("part", [b"X", b"HTTP/1.1 103 Early Hints\r\n\r\n"])
def test_an_answer_whose_head_never_ends_is_given_up(store, caplog, monkeypatch, part):
    monkeypatch.setattr("plates.cameras.delivery._ANSWER_S", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        with delivering(store, WEBHOOK | {"url": url}), server.accept()[0] as connection:
            with pytest.raises(OSError):
                wait_until(lambda: connection.sendall(part), 20)
            wait_until(lambda: "event 1 again later: it did not answer within 1 s" in caplog.text)
            with server.accept()[0] as connection:  # It need not read what it answers.
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            wait_until(all_delivered(store, "hook"))


def test_plate_recognizer_targets_get_what_plate_recognizer_stream_sends(store, receiver):
    url = receiver.url.replace("://", "://user:hunter2@") + "hook?token=hunter2"
    target = {"kind": "plate_recognizer", "url": url, "private_addresses": True}
    store.add(a_pass(), b"jpeg", ["plain", "form"])
    with delivering(store, target | {"name": "plain"}, target | {"name": "form", "picture": True}):
        wait_until(all_delivered(store, "plain", "form"))
    types = {r.headers.get_content_type(): r for r in receiver.requests}
    message = json.loads(types["application/json"].body)
    form = types["multipart/form-data"]
    head = f"content-type: {form.headers['content-type']}\r\n\r\n".encode()
    parts = email.message_from_bytes(head + form.body).get_payload()
    fields = {part.get_param("name", header="content-disposition"): part for part in parts}
    assert json.loads(fields["json"].get_payload(decode=True)) == message
    assert fields["upload"].get_payload(decode=True) == b"jpeg"
    assert fields["upload"].get_filename() == "0199-1.jpg"
    picture = {"filename": "gate-1_screenshots/0199-1.jpg"}
    hook = {"target": receiver.url + "hook", "id": "gate-1", "event": "recognition"}
    assert message["hook"] == hook | picture
    local = datetime.fromisoformat((data := message["data"]).pop("timestamp_local"))
    assert local == datetime(2026, 1, 31, 12, 0, 2, 250_000, UTC)
    (result,) = data.pop("results")
    assert data == {"camera_id": "gate-1", "timestamp": "2026-01-31T12:00:02.250000Z", **picture}
    nowhere = {"xmin": 0, "ymin": 0, "xmax": 0, "ymax": 0}
    assert result == {
        "box": {"xmin": 405, "ymin": 332, "xmax": 476, "ymax": 353},
        "plate": "x556xm750",
        "region": {"code": "ru", "score": 0.998},
        "score": 0.998,
        "candidates": [{"score": 0.998, "plate": "x556xm750"}, {"score": 0.1, "plate": "x556xm75"}],
        "dscore": 0.998,
        "vehicle": {"score": 0.0, "type": "Unknown", "box": nowhere},
        "direction": 270,
        "source_url": "",
        "position_sec": 12.4,
    }


def test_files_get_one_line_per_event(store, tmp_path):
    (tmp_path / "passes.jsonl").write_text('{"id": "cut o')
    kinds = ["jsonl", "csv"]
    targets = [{"name": kind, "kind": kind, "path": tmp_path / f"passes.{kind}"} for kind in kinds]
    store.add(a_pass(1), None, kinds)
    store.add(a_pass(2, text="", format="unknown"), None, kinds)
    with delivering(store, *targets) as built:
        wait_until(all_delivered(store, *kinds))
    # A line that a full disk takes only in part is removed.
    limited = files_limited_to(targets[1]["path"].stat().st_size + 50)
    with limited, pytest.raises(NotDelivered, match="too large"):
        built["csv"](None, a_pass().model_dump(mode="json"))
    lines = (tmp_path / "passes.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines[1:]] == ["0199-1", "0199-2"]
    with (tmp_path / "passes.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert ",".join(first) == (
        "timestamp,plate,score,dscore,file,box,model_make,color,vehicle,region,orientation,"
        "candidates,source_url,position_sec,direction"
    )
    assert first["timestamp"] == "2026-01-31 12:00:02.250000+00:00"
    assert (first["plate"], second["plate"]) == ("x556xm750", "")
    # Programs that read such files parse these cells as Python literals.
    assert literal_eval(first["region"]) == {"code": "ru", "score": 0.998}
    assert literal_eval(first["box"])["xmin"] == 405


class Broker:
    """A mosquitto with one user."""

    def __init__(self, folder):
        self.port = free_port()
        users = ["mosquitto_passwd", "-b", "-c", folder / "users", "plates", "hunter2/@"]
        subprocess.run(users, check=True, capture_output=True)
        (folder / "users").chmod(0o644)
        self.settings = folder / "mosquitto.conf"
        settings = f"listener {self.port} 127.0.0.1\npassword_file {folder}/users\nuser root\n"
        self.settings.write_text(settings)
        self.url = f"mqtt://plates:hunter2%2F%40@127.0.0.1:{self.port}"

    @contextmanager
    def running(self):
        command = ["/usr/sbin/mosquitto", "-c", str(self.settings)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.terminate()

    def messages(self, count):
        """Topics and payloads: those published since the last call, and the retained ones."""
        session = {"client_id": "test", "clean_session": False, "qos": 1}
        session |= {"hostname": "127.0.0.1", "port": self.port}
        session["auth"] = {"username": "plates", "password": "hunter2/@"}
        found = subscribe.simple("#", msg_count=count, **session)
        sent = [(m.topic, m.payload.decode()) for m in found if not m.retain]
        return sent, {m.topic: m.payload.decode() for m in found if m.retain}


@pytest.fixture
def broker(tmp_path):
    if not Path("/usr/sbin/mosquitto").exists():
        pytest.skip("mosquitto is not installed")
    return Broker(tmp_path)


def test_home_assistant_discovers_sensors_and_gets_the_latest_plates(store, broker, caplog):
    target = {"name": "home", "kind": "mqtt", "url": broker.url, "expire_after_s": 300}
    target["events"] = ["pass.updated", "pass.ended"]
    store.add(a_pass(1), None, ["home"])
    with delivering(store, target) as built:
        wait_until(lambda: "be reached: [Errno 111]" in caplog.text)  # It doesn't run yet.
        with broker.running():
            wait_until(all_delivered(store, "home"))
        store.add(a_pass(2), None, ["home"])
        with broker.running():
            wait_until(all_delivered(store, "home"))
            # Retained messages describe the sensors; plates are never retained.
            sent, retained = broker.messages(2)
            assert not sent and retained["plates/home/availability"] == "online"
            store.add(a_pass(3, "updated", text="A001AA77"), None, ["home"])
            wait_until(all_delivered(store, "home"))
            sent, _ = broker.messages(4)
            payload = search(store)[0][1]
            assert sent == [("plates/gate-1/pass", payload), ("plates/gate-1/plate", "A001AA77")]
            # An older event that is delivered later does not replace the last plate.
            now, event = time.time(), json.loads(payload)
            late = Delivery(2, "home", 1, payload, None, now - 9), event | {"text": "LATE"}
            built["home"](*late)
            store.add(a_pass(4, "updated", text="WAITED"), None, ["home"], now - 31)
            store.add(a_pass(5, text="AHEAD"), None, ["home"], now + 3600)  # before it was set back
            store.add(a_pass(3, revision=2, text="ENDED"), None, ["home"])  # already published
            wait_until(all_delivered(store, "home"))
            built["home"](late[0]._replace(seq=6), late[1] | {"text": "NEXT"})
            # A new database starts to count from 1 again, and its plates are still published.
            built["home"](late[0]._replace(seq=1, created=time.time()), event | {"text": "ANEW"})
            plates = set()
            while not plates >= {"NEXT", "ANEW"}:
                plates |= {text for topic, text in broker.messages(3)[0] if topic[-5:] == "plate"}
            assert not plates & {"LATE", "WAITED", "AHEAD", "ENDED"}
            built["home"].__self__._client.socket().shutdown(socket.SHUT_RDWR)  # like a kill
            wait_until(lambda: ("plates/home/availability", "offline") in broker.messages(2)[0])
    assert json.loads(retained["homeassistant/sensor/plates_gate-1/config"]) == {
        "name": "Licence plate",
        "unique_id": "plates_gate-1",
        "state_topic": "plates/gate-1/plate",
        "json_attributes_topic": "plates/gate-1/pass",
        "availability_topic": "plates/home/availability",
        "force_update": True,
        "expire_after": 300,
        "device": {"identifiers": ["plates_gate-1"], "name": "gate-1"},
        "origin": {"name": "plates"},
    }
    assert "hunter2" not in caplog.text


def test_a_target_without_updates_publishes_the_plate_at_the_end_of_its_pass(store, broker):
    with broker.running(), delivering(store, {"name": "home", "kind": "mqtt", "url": broker.url}):
        wait_until(all_delivered(store, "home"))
        broker.messages(2)  # From now on the broker keeps what is published.
        for number, revision in ((2, 3), (3, 1)):
            store.add(a_pass(number, revision=revision), None, ["home"])
            wait_until(all_delivered(store, "home"))
        sent, _ = broker.messages(5)
    assert [topic for topic, _ in sent[:2]] == ["plates/gate-1/pass", "plates/gate-1/plate"]


def test_a_broker_may_need_tls_and_an_error_names_a_wrong_password(
    store, broker, tmp_path, monkeypatch, caplog
):
    port, (certificate, key) = free_port(), make_certificate(tmp_path, "IP:127.0.0.1")
    with broker.settings.open("a") as file:
        file.write(f"listener {port} 127.0.0.1\ncertfile {certificate}\nkeyfile {key}\n")
    url = f"mqtts://{broker.url.removeprefix('mqtt://').replace(str(broker.port), str(port))}"
    right = {"name": "right", "kind": "mqtt", "url": url}
    wrong = {"name": "wrong", "kind": "mqtt", "url": broker.url.replace("hunter2", "other")}
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with broker.running(), delivering(store, right, wrong):
        wait_until(all_delivered(store, "right"))
        wait_until(lambda: "the broker refuses: Not authorized" in caplog.text)


def test_an_event_that_a_broker_does_not_confirm_stays_due(store, caplog, monkeypatch):
    monkeypatch.setattr("plates.cameras.delivery._TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mqtt://127.0.0.1:{silent.getsockname()[1]}"
        target = {"name": "home", "kind": "mqtt", "url": url}
        with delivering(store, target), silent.accept()[0] as connection:
            connection.sendall(b"\x20\x02\0\0")  # It accepts the connection, then falls silent.
            wait_until(lambda: "did not confirm" in caplog.text)
    assert store.due("home", 1e10)
