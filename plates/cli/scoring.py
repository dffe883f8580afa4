"""What `plates eval` scores, part by part; it loads torch."""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import Any

from tqdm import tqdm

from plate_models.engines.nets import Nets
from plate_models.images import ImageError
from plate_models.training.evaluation import sets
from plate_models.training.evaluation.scoreboard import Scoreboard, score, table
from plate_models.training.evaluation.sheet import failure_sheet
from plate_models.training.labels import LabelError
from plate_models.weights import check_manifest
from plates.cli import CommandError, printable
from plates.cli.options import RELEASED_WEIGHTS
from plates.cli.samples import SAMPLES


def score_parts(arguments: argparse.Namespace, parts: Sequence[str], nets: Nets) -> None:
    """Evaluate, print, and keep and draw what is asked for; the table of all comes at the end."""
    weights = check_manifest(arguments.weights or RELEASED_WEIGHTS)
    head = {"weights": weights, "engine": nets.engine, "device": nets.device}
    head["date"] = date.today().isoformat()
    about = "weights {weights}, engine {engine} on {device}, {date}".format_map(head)
    print(about, flush=True)
    boards: dict[str, Scoreboard] = {}
    try:
        for part in parts:
            try:
                photos = _photos(part, arguments)
            except FileNotFoundError as error:
                if arguments.parts or part == "labelled":
                    raise
                print(f"\n{part}: left out: {printable(error)}")
                continue
            found = score(tqdm(photos, part, disable=None), nets)
            boards |= found
            lines = _details(found, arguments.misses)
            print("", *map(printable, lines), sep="\n", flush=True)
            if arguments.json:
                # After each part: a run may take an hour.
                kept: dict[str, Any] = {row: board.to_dict() for row, board in boards.items()}
                text = json.dumps({**head, "rows": kept}, ensure_ascii=False, allow_nan=False)
                arguments.json.write_text(text + "\n", encoding="utf-8")
            if arguments.sheet:
                for row, board in found.items():
                    if board.failures or board.elsewhere:
                        path = arguments.sheet
                        end = row.replace(",", "").replace(" ", "-")
                        sheet = failure_sheet(board, row, [about])
                        sheet.save(path.with_stem(f"{path.stem}-{end}"))
    except (ImageError, LabelError) as error:
        raise CommandError(printable(error), status=2) from error
    print("", *table(boards), sep="\n")


def _photos(part: str, arguments: argparse.Namespace) -> Iterable[sets.Photo]:
    loads: dict[str, Callable[[], Iterable[sets.Photo]]] = {
        "labelled": lambda: sets.russian(arguments.data),
        "worse": lambda: sets.worse(arguments.data),
        "latin": lambda: sets.latin(arguments.data),
        "world": lambda: sets.world(arguments.data),
        "no-plates": lambda: sets.without_plates(arguments.data),
        "samples": lambda: sets.samples(SAMPLES),
        "rendered": lambda: sets.rendered(arguments.per_type, arguments.workers),
        "video": lambda: sets.video(arguments.clips, arguments.workers),
    }
    return loads[part]()


def _details(boards: dict[str, Scoreboard], misses: bool) -> list[str]:
    """Beside the table: the part's rows, and its texts and failures by photo."""
    lines = [*table(boards)]
    for row, board in boards.items():
        named = board.lines()
        if misses:
            named += board.failure_lines()
        if named:
            lines += ["", f"{row}: readable texts that are wrong or not labelled", *named]
    return lines
