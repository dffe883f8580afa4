"""The worker processes of `plates serve --cameras`: one per camera, and one for all deliveries.

The supervisor starts them. A camera's process decodes its source, sends the frames to Triton and
writes events to the store, from which the delivery process and the gateway read them.
"""

import argparse
import contextlib
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import Listener
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from api.settings import Settings
from plate_models import images
from plate_models.release import replace_file
from plate_models.spec import Limits
from plates.cameras import KEY_VARIABLE, state_file
from plates.cameras.delivery import deliver, targets_of
from plates.cameras.events import Pass
from plates.cameras.frames import SeenPlate
from plates.cameras.lists import PlateList
from plates.cameras.passes import Passes
from plates.cameras.recognizer import TritonRecognizer
from plates.cameras.settings import Camera, CamerasFile, load
from plates.cameras.sources import FrameSource, PushedFrames, Source
from plates.cameras.store import Outbox, Store
from plates.cameras.watch import follow
from plates.serving.child import HEARTBEAT_S, Child, begin, python, send_heartbeat

_FLUSH_S = 1.5  # for the last events at the end

log = logging.getLogger("plates.cameras")


def parts(path: Path, environment: Callable[[], Mapping[str, str]]) -> list[Child]:
    """The supervisor's parts: a process for each camera of a file, and one for the deliveries.

    Raises `CameraSettingsError` if the file is invalid.
    """
    file = load(path)
    roles = {f"camera {camera.name}": ("--camera", camera.name) for camera in file.cameras}
    return [
        Child(name, [*python("plates.cameras.worker"), *role], environment, needed=False)
        for name, role in {**roles, "delivery": ("--deliver",)}.items()
    ]


def main() -> None:
    """Run until the supervisor stops this process or ends."""
    parser = argparse.ArgumentParser(prog="python -m plates.cameras.worker")
    role = parser.add_mutually_exclusive_group(required=True)
    role.add_argument("--camera", metavar="NAME")
    role.add_argument("--deliver", action="store_true")
    options, settings = begin(parser)
    if settings.cameras is None:
        raise SystemExit("PLATES_CAMERAS is not set")
    file = load(settings.cameras)
    store = Store(file.storage)
    if options.deliver:
        _deliver(file, store, options.alive)
    else:
        camera = next(each for each in file.cameras if each.name == options.camera)
        _follow(file, camera, settings, settings.cameras.parent, store, options.alive)


def _deliver(file: CamerasFile, store: Store, alive: int) -> None:
    cameras = [camera.name for camera in file.cameras]

    def end_orphans() -> None:
        for event in store.running():
            if event.camera not in cameras:  # No process of its camera can end this pass.
                end, created = _end_of(event)
                store.add(end, None, [], created)

    Outbox().put(end_orphans)
    work = store, targets_of(file), threading.Event()
    worker = threading.Thread(target=deliver, args=work, daemon=True)
    worker.start()
    while worker.is_alive() and send_heartbeat(alive):
        time.sleep(HEARTBEAT_S)


def _follow(
    file: CamerasFile, camera: Camera, settings: Settings, folder: Path, store: Store, alive: int
) -> None:
    recognizer = TritonRecognizer(settings, camera.name, os.environ.get(KEY_VARIABLE, ""))
    outbox = Outbox()
    targets = [target for target in file.targets if target.name in camera.targets]
    pictures = file.storage.pictures or any(getattr(each, "picture", False) for each in targets)

    def add(event: Pass, created: float, picture: bytes | None = None) -> None:
        wanted = [target.name for target in targets if event.type in target.events]
        store.add(event, picture, wanted, created)

    def end_running() -> None:
        for event in store.running(camera.name):
            add(*_end_of(event))

    # End the passes that were open when this camera's previous process was killed.
    outbox.put(end_running)
    lists = [PlateList(name, file.lists[name]) for name in camera.lists]
    passes = Passes(camera.name, recognizer.reader, camera.zones, lists)

    def read(image: NDArray[np.uint8]) -> list[SeenPlate]:
        plates = recognizer.read(image)
        passes.reader = recognizer.reader
        return plates

    source, stopping = _source(camera, folder, settings.limits), threading.Event()
    written = -HEARTBEAT_S

    def stop(*_: object) -> None:
        stopping.set()
        threading.Thread(target=source.close).start()

    def goes_on() -> bool:
        nonlocal written
        # Each step gives a sign of life; the state is written less often.
        if (now := time.monotonic()) - written >= HEARTBEAT_S:
            written, file = now, state_file(folder, camera.name)
            with contextlib.suppress(OSError):  # such as a full disk
                replace_file(file, json.dumps(asdict(source.state)).encode())
        return send_heartbeat(alive)

    # On SIGTERM the source is closed, so that open passes end and are written.
    signal.signal(signal.SIGTERM, stop)
    for step in follow(source, passes, read):
        for report in step.reports:
            bgr = cv2.cvtColor(report.crop, cv2.COLOR_RGB2BGR)
            picture = cv2.imencode(".jpg", bgr)[1].tobytes() if pictures else None
            outbox.put(partial(add, report.event, time.time(), picture))
        if not goes_on():
            return
    # After the end of a file, stay alive: the supervisor would restart this process.
    while not stopping.is_set() and goes_on():
        time.sleep(HEARTBEAT_S)
    if not outbox.close(_FLUSH_S):
        log.warning("%s: some events could not be written", camera.name)


def _end_of(event: Pass) -> tuple[Pass, float]:
    """End a pass as it was reported last; returns the event and its time of creation.

    That is the last frame's time or 40 s ago: after 30 s it opens no gate, after 60 s it may go.
    """
    end = event.model_copy(update={"type": "pass.ended", "revision": event.revision + 1})
    now = time.time()
    return end, min(max(event.time.last, now - 40), now)


def _source(camera: Camera, folder: Path, limits: Limits) -> FrameSource:
    if camera.source is not None:
        return Source(camera.source.get_secret_value(), camera.fps, camera.hwaccel, camera.crop)
    frames = PushedFrames(camera.crop)
    work = folder / camera.name, frames, limits
    threading.Thread(target=receive, args=work, daemon=True).start()
    return frames


def receive(path: Path, frames: PushedFrames, limits: Limits) -> None:
    """Receive frames that the gateway pushes to a socket, for ever."""
    path.unlink(missing_ok=True)  # the socket of this camera's previous process
    with Listener(str(path), "AF_UNIX") as listener:
        while True:
            with contextlib.suppress(OSError, EOFError), listener.accept() as connection:
                captured, _, file = connection.recv_bytes().partition(b"\n")
                problem = ""
                try:
                    frames.put(images.decode(file, limits)[..., ::-1], json.loads(captured))
                except images.ImageError as error:
                    problem = f"{error.slug}: {error}"
                connection.send_bytes(problem.encode())


if __name__ == "__main__":
    main()
