"""Start the service, read photos over HTTP, write them annotated, stop the service.

Without arguments it reads the sample scenes of the repository. Fails if a photo gets no
answer, or if a plate of a sample (a photo that a plates.csv beside it names) is not read.
"""

import argparse
import contextlib
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from plates.cli import CommandError
from plates.cli.inputs import find_files, is_video, make_output_folder, output_stems
from plates.cli.output import shortened
from plates.cli.samples import SAMPLES, expected_texts, missing_texts
from plates.cli.signals import say, stop_signals_raise

_READY_S = 60
_TIMEOUT_S = 60


class NoAnswer(Exception):
    """The service gave none; the message says why."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("photos", nargs="*", metavar="FILE|DIR|GLOB", default=[str(SAMPLES)])
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        default=Path("build/demo"),
        help="where the annotated pictures go (default: build/demo)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration.

    Returns:
        0 if all went well, else 1.

    Raises:
        CommandError: There are no photos, one would be written over, or the service
            doesn't start or stop.
    """
    stems = output_stems(_photos(arguments.photos))
    try:
        expected = expected_texts(stems)
    except ValueError as error:
        raise CommandError(str(error)) from error
    make_output_folder(arguments.output, stems)
    problems: list[str] = []
    missed = 0
    with stop_signals_raise(), _service() as address:
        print(f"\n{'photo':<32} {'text':<12} {'format':<10} {'score':>6} {'plate':>6} {'ms':>7}")
        for photo, stem in stems.items():
            picture = arguments.output / f"{stem}.jpg"
            found, problem = _show(address, photo, picture)
            problems += [problem] if problem else []
            missing = missing_texts(expected.get(photo, []), found)
            problems += [f"{photo}: {text} was not read" for text in missing]
            missed += len(missing)
        print(flush=True)
    count = f"{len(stems)} photo{'s' * (len(stems) != 1)}"
    print(f"\n{count}, annotated in {arguments.output}")
    if expected:
        total = sum(map(len, expected.values()))
        print(f"{total - missed} of {total} plates of the samples read")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


def _photos(names: list[str]) -> list[Path]:
    """Find the photos before anything is started.

    Raises:
        CommandError: Something named is not there, or there are no photos at all.
    """
    files, unfound = find_files(names)
    photos = [path for path in files if not is_video(path)]
    unfound |= {str(path): "No such file" for path in photos if not path.is_file()}
    if unfound or not photos:
        raise CommandError("; ".join(f"{k}: {v}" for k, v in unfound.items()) or "no photos")
    return photos


@contextlib.contextmanager
def _service() -> Iterator[str]:
    """Run `plates serve` on free ports.

    Yields:
        host:port of the gateway, once it is ready.

    Raises:
        CommandError: It doesn't get ready, or doesn't stop cleanly.
    """
    from plates.serving.running import running_service

    with running_service(show=lambda text: say(text.rstrip("\n"))) as service:
        address = urlsplit(service.url).netloc
        _wait_until_ready(address, service.process)
        yield address
    if service.process.returncode != 0:
        raise CommandError(f"the service ended with status {service.process.returncode}")


def _wait_until_ready(address: str, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            status, document = _request(address, "GET", "/readyz")
            if status == http.HTTPStatus.OK:
                return
            reason = str(document.get("detail"))
        except NoAnswer as error:
            reason = str(error)
        if time.monotonic() > deadline or process.poll() is not None:
            raise CommandError(f"the service is not ready: {reason}")
        time.sleep(0.2)


def _request(
    address: str, method: str, path: str, body: bytes | None = None
) -> tuple[int, dict[str, Any]]:
    """Send one request to the service.

    Returns:
        The status and the JSON of the answer.

    Raises:
        NoAnswer: The connection failed, it took too long, or it was no JSON.
    """
    # The bytes tell the type; the header only says that this is no form.
    headers = {"Content-Type": "image/*"} if body is not None else {}
    connection = http.client.HTTPConnection(address, timeout=_TIMEOUT_S)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswer(f"no answer from the service: {error or type(error).__name__}") from error
    finally:
        connection.close()


def _show(address: str, photo: Path, picture: Path) -> tuple[list[str], str | None]:
    """Read one photo, print its rows and write its picture.

    Returns:
        The texts found, and what went wrong, if anything did.
    """
    name = shortened(str(photo), 32)
    try:
        data = photo.read_bytes()
        status, answer = _request(address, "POST", "/v1/plates", data)
        reason = None if status == http.HTTPStatus.OK else str(answer["detail"])
    except OSError as error:
        reason = error.strerror or str(error)
    except NoAnswer as error:
        reason = str(error)
    if reason is not None:
        print(f"{name:<32} {reason}")
        return [], f"{photo}: {reason}"
    ms = f"{answer['timing_ms']['total']:>7.1f}"
    for plate in answer["plates"]:
        scores = f"{plate['score']:>6.3f} {plate['detection_score']:>6.3f}"
        print(f"{name:<32} {plate['text'] or '?':<12} {plate['format']:<10} {scores} {ms}")
    if not answer["plates"]:
        print(f"{name:<32} {'-':<12} {'':<24} {ms}")
    _draw(data, answer["plates"], picture)
    return [plate["text"] for plate in answer["plates"]], None


def _draw(data: bytes, plates: list[dict[str, Any]], path: Path) -> None:
    from plate_models.annotate import Mark, annotate, write_jpeg
    from plate_models.images import decode

    marks = [Mark(plate["quad"], plate["text"] or "?", plate["readable"]) for plate in plates]
    write_jpeg(path, annotate(decode(data), marks))
