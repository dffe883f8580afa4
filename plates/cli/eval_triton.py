"""The labelled photos read by a real `plate_recognition`, and in this process beside it."""

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from api.errors import Problem
from api.settings import Settings
from api.triton import Recognition, TritonClient
from plate_models.annotate import straighten
from plate_models.engines.nets import Nets
from plate_models.export import REPOSITORY, export
from plate_models.pipeline import Plate
from plate_models.recognition.decoding import Reading
from plate_models.spec import DETECTOR, RECTIFIER
from plate_models.training.evaluation.agreement import PhotoAgreement
from plate_models.training.evaluation.labelled import Read
from plate_models.training.labels import LabelledPhoto
from plates.cli import CommandError, printable
from plates.cli.options import RELEASED_WEIGHTS
from plates.serving import EmbeddedTriton, EmbeddedTritonError

# Boxes of the two may lie so far apart.
WITHIN_PX = 0.1
_TIMEOUT_S = 60.0


@contextmanager
def through_triton(
    arguments: argparse.Namespace, nets: Nets, weights: str
) -> Iterator[tuple[Read, PhotoAgreement]]:
    """Read photos through the Triton of --triton, or through one that is started.

    Yields:
        What reads a photo, and the agreement of its answers with those of the nets here.

    Raises:
        CommandError: There is no Triton, it gives no answer, or it serves other weights.
    """
    agreement = PhotoAgreement()
    with ExitStack() as stack:
        address = arguments.triton
        if address is None:
            if arguments.weights and arguments.weights.resolve() != RELEASED_WEIGHTS:
                text = "--via triton starts a Triton of the released weights; give --triton"
                raise CommandError(text)
            export(RELEASED_WEIGHTS, REPOSITORY)
            try:
                address = stack.enter_context(EmbeddedTriton(REPOSITORY)).grpc_url
            except EmbeddedTritonError as error:
                raise CommandError(str(error)) from error
        runner = stack.enter_context(asyncio.Runner())
        client = runner.run(_connect(address))
        stack.callback(lambda: runner.run(client.__aexit__()))

        def read(photo: LabelledPhoto, image: Tensor) -> list[Plate]:
            try:
                answer = runner.run(client.recognize(photo.path.read_bytes(), _TIMEOUT_S))
            except Problem as problem:
                raise CommandError(f"{printable(photo.path)}: Triton: {problem}") from problem
            if answer.info["weights"] != weights:
                raise CommandError(
                    f"Triton serves the weights {answer.info['weights']}, "
                    f"and {weights} are to be scored; export and serve these"
                )
            plates = plates_of(answer, image.numpy())
            agreement.add(photo.path.name, nets.read(image), plates)
            return plates

        yield read, agreement


async def _connect(address: str) -> TritonClient:
    """Open a channel inside the loop that it belongs to."""
    try:
        return TritonClient(Settings(triton_url=address))
    except ValidationError as error:
        raise CommandError(f"--triton: {error.errors()[0]['msg']}") from error


def disagreements(agreement: PhotoAgreement) -> list[str]:
    """The comparison in one line, and a line for each disagreement."""
    pairs = agreement.disagreeing(WITHIN_PX)
    agreed = agreement.photos - len({pair.photo for pair in pairs})
    counts = f"{agreed} of {agreement.photos} photos (same texts, boxes within {WITHIN_PX} px)"
    return [f"Triton agrees with in process: {counts}", *(pair.line() for pair in pairs)]


def plates_of(answer: Recognition, image: NDArray[np.uint8]) -> list[Plate]:
    """Turn Triton's answer into what the pipeline gives in process.

    Triton names neither the lines of text, which are judged by the quad's shape, nor the
    rectified plate, which is cut out of the photo, (H, W, 3) uint8 RGB, along the quad.
    """
    plates = []
    height, width = RECTIFIER.shown_hw
    for row, text in enumerate(answer.texts):
        crop = straighten(image, answer.quads[row])
        scored = zip(answer.candidates[row], answer.candidate_scores[row].tolist(), strict=True)
        candidates = tuple((guess, score) for guess, score in scored if guess)
        score, name = float(answer.text_scores[row]), answer.formats[row]
        x0, y0, x1, y1 = answer.boxes[row].tolist()
        plates.append(
            Plate(
                box=(x0, y0, x1, y1),
                quad=tuple((x, y) for x, y in answer.quads[row].tolist()),
                detection_score=float(answer.detection_scores[row]),
                lines=1 if crop.shape[1] >= DETECTOR.long_aspect * crop.shape[0] else 2,
                reading=Reading(text, score, bool(text), name, (), candidates),
                crop=np.asarray(cv2.resize(crop, (width, height)), np.uint8),
            )
        )
    return plates
