"""Scores photos whose plates are labelled, and photos that have none."""

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

from plate_models.engines.nets import Nets
from plate_models.images import decode
from plate_models.pipeline import Plate
from plate_models.training.baseline import Baseline
from plate_models.training.evaluation.answers import answer_from, read_boxes, weigh_grammar
from plate_models.training.evaluation.matching import match
from plate_models.training.evaluation.results import Answer, PlateResult
from plate_models.training.evaluation.scoreboard import Scoreboard
from plate_models.training.labels import LabelledPhoto, load_labels, load_negatives

Progress = Callable[[list[LabelledPhoto]], Iterable[LabelledPhoto]]
# Reads a photo end to end: given are its file's place and its pixels, whichever is wanted.
Read = Callable[[LabelledPhoto, Tensor], list[Plate]]


def labelled_folder(data: Path) -> Path:
    """The labelled set of a data folder: its ``ru_photos``, or the folder itself."""
    return data / "ru_photos" if (data / "ru_photos").is_dir() else data


def evaluate(
    data: Path,
    nets: Nets,
    baseline: Path | None = None,
    progress: Progress = iter,
    read: Read | None = None,
) -> Scoreboard:
    """Score the nets at the operating point that ships.

    Args:
        data: Holds ``ru_photos/`` and optionally ``no_plates/``, or is itself a labelled
            set (``images/`` and ``plates.csv``).
        nets: The nets.
        baseline: Folder of the published recognizer (``stn.pt``, ``lprnet.pt``), scored
            on the same plates in the same run; None to leave it out.
        progress: Wraps each list of photos, for a progress bar.
        read: Reads photos end to end; None reads them with ``nets``. What is read in
            labelled boxes is always read with ``nets``.

    Returns:
        The scoreboard.

    Raises:
        FileNotFoundError: There is no labelled set in ``data``, or no published recognizer
            in ``baseline``.
        LabelError: The table of labels is broken.
    """
    published = Baseline(baseline) if baseline else None
    read = read or (lambda _, image: nets.read(image))
    board = Scoreboard()
    for photo in progress(load_labels(labelled_folder(data))):
        image = torch.from_numpy(decode(photo.path.read_bytes()))
        results, elsewhere = score_photo(photo, image, read(photo, image), nets, published)
        board.plates += results
        board.elsewhere += elsewhere
    board.grammar = weigh_grammar(board.plates, nets)
    if (data / "no_plates").is_dir():
        negatives = load_negatives(data / "no_plates", held_out=True)
        board.photos_without = len(negatives)
        board.false_texts = _texts_in(negatives, read, progress)
    return board


def _texts_in(photos: list[LabelledPhoto], read: Read, progress: Progress) -> list[Answer]:
    """Every readable text of some photos."""
    texts = []
    for photo in progress(photos):
        image = torch.from_numpy(decode(photo.path.read_bytes()))
        answers = [answer_from(photo.path.name, plate) for plate in read(photo, image)]
        texts += [answer for answer in answers if answer.text]
    return texts


def score_photo(
    photo: LabelledPhoto,
    image: Tensor,
    found: list[Plate],
    nets: Nets,
    published: Baseline | None = None,
) -> tuple[list[PlateResult], list[Answer]]:
    """Hold what was found in a photo against its labels, and read these boxes, too.

    Args:
        photo: With its labels.
        image: The decoded photo, (H, W, 3) uint8 RGB.
        found: Its plates, end to end.
        nets: The nets.
        published: The published recognizer, to score it as well.

    Returns:
        One result per label, and the answers that overlap no label.
    """
    name, labels = photo.path.name, photo.plates
    boxes = [label.box for label in labels]
    matched, elsewhere = match(boxes, found)
    in_labels = read_boxes(name, image, boxes, [label.lines for label in labels], nets)
    results = [
        PlateResult(
            photo=name,
            box=label.box,
            text=label.text,
            light=label.light,
            legible=label.legible,
            lines=label.lines,
            in_label=in_label,
            answers=tuple(answer_from(name, plate, iou) for plate, iou in its),
            published=published.read(image.numpy(), label.box)
            if published and label.legible
            else {},
        )
        for label, its, in_label in zip(labels, matched, in_labels, strict=True)
    ]
    return results, [answer_from(name, plate) for plate in elsewhere]
