"""Start the service, read photos over HTTP, write them annotated, stop the service.

Without arguments it reads the sample scenes of the repository. Fails if a photo gets no
answer, or if a plate of a sample (a photo that a plates.csv beside it names) is not read.
The service's log goes to service.log beside the annotated pictures.
"""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plates.cli import CommandError, printable
from plates.cli.inputs import InputError, Inputs, Picture, find_inputs, make_output_folder
from plates.cli.read import read_inputs, table_writer
from plates.cli.samples import SAMPLES, expected_texts, missing_texts
from plates.cli.signals import say, stop_signals_raise

if TYPE_CHECKING:
    from api.answers import Plate

_READY_S = 60
_TIMEOUT_S = 60


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("photos", nargs="*", metavar="FILE|DIR|GLOB", default=[str(SAMPLES)])
    output = Path("build/demo")
    text = f"where the annotated pictures and the service's log go (default: {output})"
    parser.add_argument("--output", type=Path, metavar="DIR", default=output, help=text)


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration; the exit status is 0 if all went well, else 1."""
    inputs = _photos(arguments.photos)
    try:
        expected = expected_texts(inputs.kinds)
    except ValueError as error:
        raise CommandError(str(error)) from error
    make_output_folder(arguments.output, inputs.kinds)
    log = arguments.output / "service.log"
    found: dict[Path, list[str]] = {}

    def read(picture: Picture) -> "list[Plate]":
        plates = _plates(url, picture.file.read_bytes())
        found[picture.file] = [plate.text for plate in plates]
        return plates

    try:
        with stop_signals_raise(), _service(log) as url:
            _warm_up(url)
            print()
            read_inputs(inputs, read, table_writer(inputs, timed=True), arguments.output)
            print(flush=True)
    except CommandError as error:
        raise CommandError(f"{error}\nThe service's log: {log}") from error
    missed = {
        photo: missing_texts(texts, found.get(photo, [])) for photo, texts in expected.items()
    }
    count = len(inputs.kinds)
    print(f"\n{count} photo{'s' * (count != 1)}, annotated in {arguments.output}")
    if expected:
        total, lost = (sum(map(len, texts.values())) for texts in (expected, missed))
        print(f"{total - lost} of {total} plates of the samples read")
    inputs.print_omissions()
    for photo, texts in missed.items():
        for text in texts:
            print(f"{printable(photo)}: {text} was not read", file=sys.stderr)
    if not inputs.failures and not any(missed.values()):
        return 0
    print(f"The service's log: {log}", file=sys.stderr)
    return 1


def _photos(names: list[str]) -> Inputs:
    """Find the photos before anything is started."""
    inputs = find_inputs(names)
    videos = [path for path, kind in inputs.kinds.items() if kind == "video"]
    inputs.kinds = {path: kind for path, kind in inputs.kinds.items() if kind != "video"}
    inputs.failures |= {str(p): "No such file" for p in inputs.kinds if not p.exists()}
    if inputs.failures:
        raise CommandError("; ".join(f"{k}: {v}" for k, v in inputs.failures.items()))
    if not inputs.kinds:
        raise CommandError("no photos" + "; `plates read` reads videos" * bool(videos))
    return inputs


@contextlib.contextmanager
def _service(log: Path) -> Iterator[str]:
    """Run `plates serve` on free ports; yields its URL once it is ready."""
    from plates.serving.running import running_service

    with running_service(log=log, show=lambda text: say(text.rstrip("\n"))) as service:
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                _ask(service.url, "GET", "/readyz")
                break
            except InputError as error:
                if time.monotonic() > deadline or service.process.poll() is not None:
                    raise CommandError(f"the service is not ready: {error}") from error
            time.sleep(0.2)
        yield service.url
    if service.process.returncode != 0:
        raise CommandError(f"the service ended with status {service.process.returncode}")


def _ask(url: str, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
    """Send one request; returns the JSON of its answer, or raises InputError."""
    import httpx

    # The service reads the type from the bytes; the header only says that this is no form.
    headers = {"Content-Type": "image/*"} if body is not None else {}
    try:
        # No proxy of the environment: the service is on this machine.
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
            response = client.request(method, url + path, content=body, headers=headers)
        answer: dict[str, Any] = response.json()
    except (httpx.HTTPError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise InputError(f"no answer from the service: {reason}") from error
    if response.status_code != httpx.codes.OK:
        raise InputError(str(answer.get("detail")))
    return answer


def _plates(url: str, photo: bytes) -> "list[Plate]":
    from api.answers import Plate

    answer = _ask(url, "POST", "/v1/plates", photo)
    return [Plate.model_validate(plate) for plate in answer["plates"]]


def _warm_up(url: str) -> None:
    """Use each canvas once: the first photo on one takes ten times as long as later ones."""
    import cv2
    import numpy as np

    from plate_models.spec import DETECTOR

    for height, width in DETECTOR.canvases_hw:
        _, blank = cv2.imencode(".jpg", np.zeros((height, width, 3), np.uint8))
        with contextlib.suppress(InputError):
            _plates(url, blank.tobytes())
