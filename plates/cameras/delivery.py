"""Deliver events at least once to each target, in the target's format, with retries."""

import csv
import io
import ipaddress
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode
from standardwebhooks import Webhook

from plate_models.formats import country_of
from plates.cameras import settings
from plates.cameras.store import Delivery, Store, StoreUnavailable

logger = logging.getLogger(__name__)
# httpx logs whole URLs, which may contain passwords.
logging.getLogger("httpx").setLevel(logging.WARNING)

_TIMEOUT_S, _POLL_S, _PURGE_EVERY_S = 10, 0.2, 10
# Wait long: a receiver may act before it answers, and a retry would make it act twice. A receiver
# that limits the rate is left alone for at most the second number of seconds.
_ANSWER_S, _LONGEST_PAUSE_S = 30, 30
_LATE_S, _DATABASE_S = 30, 5  # age from which an event opens no gate; pause without a database
# Plate Recognizer Stream gives angles on the unit circle; approaching is downwards.
_ANGLES = {"right": 0, "leaving": 90, "left": 180, "approaching": 270}
_CSV_HEADER = (
    "timestamp,plate,score,dscore,file,box,model_make,color,vehicle,region,orientation,"
    "candidates,source_url,position_sec,direction"
)

Event = dict[str, Any]

# Sends a delivery's event, which is its parsed payload; raises `NotDelivered`.
Target = Callable[[Delivery, Event], None]


class NotDelivered(Exception):
    """A target did not accept an event; the message says why, without passwords."""

    pause_s = 0  # for which the target wants no further events


def deliver(store: Store, targets: Mapping[str, Target], stop: threading.Event) -> None:
    """Deliver the store's events, with a thread per target, and purge the store, until `stop`."""
    began, began_at = time.time(), time.monotonic()
    threads = [threading.Thread(target=_serve, args=(store, *t, stop)) for t in targets.items()]
    for thread in threads:
        thread.daemon = True
        thread.start()
    while not stop.wait(_PURGE_EVERY_S):
        now, passed = time.time(), time.monotonic() - began_at
        # A clock that is set right makes events look old: they have a day to be delivered.
        longer_s = max(0.0, now - began - passed) if passed < 86_400 else 0.0
        with suppress(StoreUnavailable):
            store.purge(now, targets, longer_s)
    for thread in threads:
        thread.join(2 * _TIMEOUT_S)


def _serve(store: Store, name: str, target: Target, stop: threading.Event) -> None:
    pause_s: float = _POLL_S
    while not stop.wait(pause_s):
        try:
            # One by one: a new event comes before those that wait.
            sent = [_attempt(store, target, each, stop) for each in store.due(name, time.time(), 1)]
            pause_s = 0 if any(sent) else _POLL_S
        except StoreUnavailable:
            pause_s = _DATABASE_S


def _attempt(store: Store, target: Target, delivery: Delivery, stop: threading.Event) -> bool:
    """Send an event and record the outcome; returns whether it was delivered."""
    try:
        target(delivery, json.loads(delivery.payload))
    except Exception as error:
        # Don't block the other events. Messages of libraries may contain passwords.
        reason = error if isinstance(error, NotDelivered) else type(error).__name__
        stop.wait(getattr(error, "pause_s", 0))
        again = store.failed(delivery, time.time())
        level, outcome = (logging.WARNING, "again later") if again else (logging.ERROR, "lost")
        logger.log(level, "%s: event %d %s: %s", delivery.target, delivery.seq, outcome, reason)
        return False
    while True:  # Else the event would be delivered again.
        try:
            store.delivered(delivery)
            return True
        except StoreUnavailable:
            if stop.wait(_DATABASE_S):
                return False


def targets_of(file: settings.CamerasFile) -> dict[str, Target]:
    """Build a file's targets by name; MQTT targets start to connect."""
    targets: dict[str, Target] = {}
    for target in file.targets:
        if isinstance(target, settings.MqttTarget):
            cameras = [camera.name for camera in file.cameras if target.name in camera.targets]
            targets[target.name] = _Mqtt(target, cameras).publish
        elif isinstance(target, settings.FileTarget):
            targets[target.name] = partial(_append, target)
        else:
            # No proxies of the environment: they would resolve names themselves, unchecked.
            # SSL_CERT_FILE is used all the same.
            transport = _PinnedTransport(target.private_addresses)
            timeout = httpx.Timeout(_TIMEOUT_S, read=_ANSWER_S)
            client = httpx.Client(transport=transport, trust_env=False, timeout=timeout)
            targets[target.name] = partial(_post, target, client)
    return targets


class _PinnedTransport(httpx.HTTPTransport):
    """Sends to the first checked address that connects: DNS may change after the check."""

    def __init__(self, private_addresses: bool) -> None:
        super().__init__()
        self._private_addresses = private_addresses

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        # The client's time-out begins anew with each byte of the head of a response.
        timer = threading.Timer(_ANSWER_S, self.close)
        timer.daemon = True
        timer.start()
        try:
            return self._send(request)
        except httpx.ReadError:
            if timer.is_alive():
                raise
            raise NotDelivered(f"it did not answer within {_ANSWER_S} s") from None
        finally:
            timer.cancel()

    def _send(self, request: httpx.Request) -> httpx.Response:
        url, host = request.url, request.url.raw_host.decode()
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise NotDelivered(f"its name has no address: {error}") from None
        # Check the certificate for the name; the Host header has been set already.
        request.extensions |= {"sni_hostname": host}
        text = "its address is private; private_addresses = true allows that"
        problem: Exception = NotDelivered(text)  # if no address is tried
        for address in dict.fromkeys(str(each[4][0]) for each in found):
            ip = ipaddress.ip_address(address)
            if not self._private_addresses and (not ip.is_global or ip.is_multicast):
                continue
            request.url = url.copy_with(host=address)
            try:
                return super().handle_request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                problem = error
        raise problem


def _post(
    target: settings.WebhookTarget | settings.PlateRecognizerTarget,
    client: httpx.Client,
    delivery: Delivery,
    event: Event,
) -> None:
    url = target.url.get_secret_value()
    if isinstance(target, settings.WebhookTarget):
        request = _signed(delivery.payload, event, target.secret.get_secret_value())
    else:
        request = _stream_request(event, url, delivery.picture if target.picture else None)
    try:
        # Don't read the response's body: it may be endless.
        with client.stream("POST", url, **request) as response:
            status, pause = response.status_code, response.headers.get("retry-after", "")
    except httpx.HTTPError as error:
        raise NotDelivered(f"{type(error).__name__}: {error}") from None
    if not 200 <= status < 300:
        refusal = NotDelivered(f"it answered {status}")
        # A target that limits the rate would refuse the next event, too.
        refusal.pause_s = min(int(pause), _LONGEST_PAUSE_S) if pause.isdecimal() else 0
        raise refusal


def _signed(payload: str, event: Event, secret: str) -> dict[str, Any]:
    """Sign an event (https://www.standardwebhooks.com)."""
    # The same id at each attempt; without full stops, which separate the parts that are signed.
    webhook_id = f"{event['id']}-{event['revision']}-{event['type'].removeprefix('pass.')}"
    now = datetime.now(UTC)
    headers = {
        "content-type": "application/json",
        "webhook-id": webhook_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(webhook_id, now, payload),
    }
    return {"content": payload.encode(), "headers": headers}


def _stream_request(event: Event, url: str, picture: bytes | None) -> dict[str, Any]:
    """Build Plate Recognizer Stream's message: JSON, or a form of JSON and picture."""
    moment, file, result = _in_stream_form(event)
    message = {
        "hook": {
            "target": str(httpx.URL(url).copy_with(userinfo=None, query=None)),
            "id": event["camera"],
            "event": "recognition",
            "filename": file,
        },
        "data": {
            "camera_id": event["camera"],
            "filename": file,
            "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "timestamp_local": moment.astimezone().isoformat(" ", "microseconds"),
            "results": [result],
        },
    }
    if picture is None:
        return {"json": message}
    upload = (Path(file).name, picture, "image/jpeg")
    return {"data": {"json": json.dumps(message)}, "files": {"upload": upload}}


def _in_stream_form(event: Event) -> tuple[datetime, str, Event]:
    """The time of the best frame, the picture's file name, and the plate, in Stream's format."""
    text, score = event["text"], event["score"]
    country = country_of(event["format"])
    guesses = [(text, score)] if text else []
    guesses += [(c["text"], c["score"]) for c in event["candidates"] if c["text"] != text]
    sides = ("xmin", "ymin", "xmax", "ymax")
    result = {
        "box": dict(zip(sides, map(round, event["best"]["box"]), strict=True)),
        "plate": text.lower(),
        # If the text is right, so are the country and the detection.
        "region": {"code": country or "", "score": score if country else 0.0},
        "score": score,
        "candidates": [{"score": sure, "plate": guess.lower()} for guess, sure in guesses],
        "dscore": score,
        # Vehicles are not recognised.
        "vehicle": {"score": 0.0, "type": "Unknown", "box": dict.fromkeys(sides, 0)},
        "direction": _ANGLES.get(event["motion"]["direction"], ""),
        "source_url": "",
        "position_sec": event["time"]["position_s"],
    }
    file = f"{event['camera']}_screenshots/{event['id']}.jpg"
    return datetime.fromisoformat(event["time"]["best"]), file, result


def _stream_row(event: Event) -> str:
    moment, file, result = _in_stream_form(event)
    # Stream writes cells with several values as Python literals.
    row = result | {"model_make": [], "color": [], "orientation": [], "file": f"/{file}"}
    row["timestamp"] = moment.isoformat(" ", "microseconds")
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(row[key] for key in _CSV_HEADER.split(","))
    return line.getvalue()


def _append(target: settings.FileTarget, _: Delivery, event: Event) -> None:
    """Append a line and flush it to the disk before the event counts as delivered."""
    if is_csv := target.kind == "csv":
        line = _stream_row(event)
    else:
        line = json.dumps(event, ensure_ascii=False, separators=(",", ":")) + "\n"
    try:
        with target.path.open("a+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            # A crash may have cut off the last line.
            before = "" if file.read() in (b"", b"\n") else "\n"
            header = f"{_CSV_HEADER}\n" if is_csv and not size else ""
            content = f"{before}{header}{line}".encode()
            try:
                while content:
                    content = content[file.write(content) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)  # A full disk may have taken a part of the line.
                raise
    except OSError as error:
        raise NotDelivered(str(error)) from None


class _Mqtt:
    """Publishes plates, and the configuration with which Home Assistant discovers its sensors.

    Plates are not retained: yesterday's plate must not open a gate that subscribes today.
    """

    def __init__(self, target: settings.MqttTarget, cameras: Sequence[str]) -> None:
        self._target, self._cameras = target, cameras
        self._problem = "the broker is not connected"
        self._newest: dict[str, Delivery] = {}  # by camera, the one whose plate the sensor shows
        self._availability = f"plates/{target.name}/availability"
        address = urlsplit(target.url.get_secret_value())
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2)
        if address.username:
            self._client.username_pw_set(unquote(address.username), unquote(address.password or ""))
        if address.scheme == "mqtts":
            self._client.tls_set()
        self._client.will_set(self._availability, "offline", qos=1, retain=True)
        self._client.on_connect, self._client.on_connect_fail = self._start, self._note_failure
        self._client.reconnect_delay_set(max_delay=_TIMEOUT_S)  # two minutes would be too late
        port = address.port or (8883 if address.scheme == "mqtts" else 1883)
        self._client.connect_async(address.hostname or "", port)
        self._client.loop_start()

    def publish(self, delivery: Delivery, event: Event) -> None:
        if not self._client.is_connected():
            raise NotDelivered(self._problem)
        # Publish the attributes first: the state triggers automations. An event after an outage, or
        # after newer events, doesn't change the state: it must open no gate.
        camera, payloads = event["camera"], {"pass": delivery.payload, "plate": event["text"]}
        late = abs(time.time() - delivery.created) > _LATE_S  # or the clock was set back since
        # Nor does the end of a pass whose updates were published.
        updated = event["revision"] > 1 and "pass.updated" in self._target.events
        late |= updated and event["type"] == "pass.ended"
        newest = self._newest.get(camera, delivery)
        # The numbers of a new database start again, but its events are created later.
        if late := late or (delivery.seq < newest.seq and delivery.created <= newest.created):
            del payloads["plate"]
        for name, payload in payloads.items():
            message = self._client.publish(f"plates/{camera}/{name}", payload, qos=1)
            message.wait_for_publish(_TIMEOUT_S)
            if not message.is_published():
                raise NotDelivered(f"the broker did not confirm it within {_TIMEOUT_S} s")
        if not late:
            self._newest[camera] = delivery

    def _note_failure(self, *_: object) -> None:
        # paho calls this while it handles the exception.
        self._problem = f"the broker can't be reached: {sys.exc_info()[1]}"

    def _start(self, _c: mqtt.Client, _data: Any, _flags: Any, reason: ReasonCode, _p: Any) -> None:
        if reason.is_failure:
            self._problem = f"the broker refuses: {reason}"
            return
        for camera in self._cameras:
            topic = f"homeassistant/sensor/plates_{camera}/config"
            self._client.publish(topic, json.dumps(self._sensor(camera)), qos=1, retain=True)
        self._client.publish(self._availability, "online", qos=1, retain=True)

    def _sensor(self, camera: str) -> Event:
        """Describe a sensor (https://www.home-assistant.io/integrations/sensor.mqtt)."""
        expiry = self._target.expire_after_s
        return {
            "name": "Licence plate",
            "unique_id": f"plates_{camera}",
            "state_topic": f"plates/{camera}/plate",
            "json_attributes_topic": f"plates/{camera}/pass",
            "availability_topic": self._availability,
            "force_update": True,  # The same plate again must trigger automations, too.
            "device": {"identifiers": [f"plates_{camera}"], "name": camera},
            "origin": {"name": "plates"},
        } | ({"expire_after": expiry} if expiry else {})
