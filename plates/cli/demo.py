"""Start the service, read photos over HTTP, save them with their plates drawn in, stop the service.

Without arguments the command reads the repository's sample scenes, then follows a clip of a passing
car, as `plates watch` does. It fails if a photo gets no answer, or if a plate of a sample (a photo
or clip listed in a plates.csv beside it) is not read. The service's log goes to service.log beside
the annotated pictures.
"""

import argparse
import os
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx
from tqdm import tqdm

from api.answers import PlatesAnswer
from plates.cli import CommandError, printable, say, stop_signals_raise
from plates.cli.inputs import Inputs, find_inputs
from plates.cli.outputs import Jpegs, Table
from plates.cli.samples import CLIP, SAMPLES, expected_texts, missing_texts
from plates.serving.running import running_service, wait_until_ready

_PATIENCE_S = 60
_CLIP_FPS = 8.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("photos", nargs="*", metavar="FILE|DIR|GLOB", default=[str(SAMPLES)])
    text = "folder for the annotated pictures and the service's log (default: %(default)s)"
    parser.add_argument("--output", type=Path, metavar="DIR", default="build/demo", help=text)


def run(arguments: argparse.Namespace) -> int:
    inputs = _photos(arguments.photos)
    expected = expected_texts(inputs.kinds)
    jpegs = Jpegs(inputs, arguments.output)
    log = arguments.output / "service.log"
    try:
        found = _read(inputs, jpegs, log)
    except CommandError as error:
        raise CommandError(f"{error}\nThe service's log: {printable(log)}") from error
    missing = [
        f"{printable(photo)}: {text} was not read"
        for photo, texts in expected.items()
        for text in missing_texts(texts, found.get(photo, []))
    ]
    count = len(found)
    print(f"\n{count} photo{'s' * (count != 1)}, annotated in {printable(arguments.output)}")
    if total := sum(map(len, expected.values())):
        print(f"{total - len(missing)} of {total} plates of the samples read")
    if arguments.photos == [str(SAMPLES)]:
        missing += _follow(CLIP, arguments.output)
    inputs.print_omissions()
    if not inputs.failures and not missing:
        return 0
    print(*missing, f"The service's log: {printable(log)}", sep="\n", file=sys.stderr)
    return 1


def _follow(clip: Path, output: Path) -> list[str]:
    """Follow a clip and show its passes; returns a line for each plate that was not read."""
    from plate_models.engines.nets import load_nets
    from plates.cameras import watch

    print(f"\nA camera's clip, {printable(clip.name)}: one event for each car", flush=True)
    nets = load_nets()
    [camera] = watch.open_cameras([str(clip)], _CLIP_FPS, [], nets, "")
    found: list[str] = []

    def note(step: watch.Step) -> None:
        found.extend(each.event.text for each in step.reports if each.event.type == "pass.ended")

    with watch.live_table() as show, watch.annotated_videos(output, _CLIP_FPS) as write:
        watch.follow_all([camera], nets, [show, write, note])
    [texts] = expected_texts([clip]).values()
    return [f"{printable(clip)}: {text} was not read" for text in missing_texts(texts, found)]


def _photos(names: list[str]) -> Inputs:
    """Find the photos before the service starts; raises CommandError if one is missing."""
    inputs = find_inputs(names)
    inputs.kinds = {path: kind for path, kind in inputs.kinds.items() if kind != "video"}
    inputs.failures |= {str(p): "No such file" for p in inputs.kinds if not os.path.exists(p)}
    if inputs.failures:
        text = "; ".join(f"{name}: {reason}" for name, reason in inputs.failures.items())
        raise CommandError(printable(text))
    if not inputs.kinds:
        raise CommandError("no photos found; for videos use `plates read`")
    return inputs


def _read(inputs: Inputs, jpegs: Jpegs, log: Path) -> dict[Path, list[str]]:
    """Start a service, have it read the photos, and annotate them; returns each photo's texts."""
    found: dict[Path, list[str]] = {}
    with (
        stop_signals_raise(),
        running_service({}, log, lambda text: say(text.rstrip("\n"))) as (process, url),
        # Without the environment's proxy: the service is on this machine.
        httpx.Client(base_url=url, timeout=_PATIENCE_S, trust_env=False) as client,
        closing(inputs.pictures()) as pictures,
    ):
        wait_until_ready(url, _PATIENCE_S, process)
        print()
        table = Table(inputs, timed=True)
        for picture in pictures:
            began, photo = time.perf_counter(), picture.file.read_bytes()
            try:
                # The service detects the type; this header only says that the body is no form.
                headers = {"Content-Type": "image/*"}
                answer = client.post("/v1/plates", content=photo, headers=headers)
                plates = PlatesAnswer.model_validate(answer.raise_for_status().json()).plates
            except httpx.HTTPError as error:
                inputs.failures[str(picture.file)] = f"no answer from the service: {error}"
                continue
            with tqdm.external_write_mode(sys.stdout):
                table.print(picture, plates, 1e3 * (time.perf_counter() - began))
            jpegs.write(picture, plates)
            found[picture.file] = [plate.text for plate in plates]
        print(flush=True)
    return found
