"""The labelled photos read by a real `plate_recognition`, and in this process beside it."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from plates.cli import CommandError
from plates.cli.eval_parts import Context, Report
from plates.cli.options import triton_client

if TYPE_CHECKING:
    from torch import Tensor

    from api.triton import Recognition, TritonClient
    from plate_models.engines.nets import Nets
    from plate_models.pipeline import Plate
    from plate_models.training.evaluation.agreement import PhotoAgreement
    from plate_models.training.labels import LabelledPhoto

# Boxes of the two may lie so far apart.
WITHIN_PX = 0.1
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class ThroughTriton:
    """A report on photos that Triton read.

    Attributes:
        report: On the photos.
        agreement: Of Triton's answers with those of this process.
    """

    report: Report
    agreement: "PhotoAgreement"

    @property
    def passed(self) -> bool:
        """Whether the two agree on every photo."""
        return not self.agreement.disagreeing(WITHIN_PX)

    def lines(self) -> list[str]:
        """The report, then the comparison with every disagreement."""
        pairs = self.agreement.disagreeing(WITHIN_PX)
        total = self.agreement.photos
        agreed = total - len({pair.photo for pair in pairs})
        verdict = (
            f"Triton agrees with in process: {agreed} of {total} photos "
            f"(same texts, boxes within {WITHIN_PX} px)"
        )
        return [*self.report.lines(), "", verdict, *(pair.line() for pair in pairs)]

    def to_dict(self) -> dict[str, Any]:
        """The report's values, and the comparison."""
        return {**self.report.to_dict(), "via_triton": self.agreement.to_dict()}


class TritonPhotos:
    """Reads photos through Triton, and holds each answer against this process's own.

    Attributes:
        agreement: Of all photos read until now.
    """

    def __init__(
        self, client: "TritonClient", runner: asyncio.Runner, nets: "Nets", weights: str
    ) -> None:
        from plate_models.training.evaluation.agreement import PhotoAgreement

        self._client, self._runner = client, runner
        self._nets, self._weights = nets, weights
        self.agreement = PhotoAgreement()

    def __call__(self, photo: "LabelledPhoto", image: "Tensor") -> "list[Plate]":
        """Read one photo from its file.

        Raises:
            CommandError: Triton gives no answer, or serves other weights.
        """
        from api.errors import Problem

        file = photo.path.read_bytes()
        try:
            answer = self._runner.run(self._client.recognize(file, _TIMEOUT_S))
        except Problem as problem:
            raise CommandError(f"{photo.path}: Triton: {problem.detail}") from problem
        if answer.info["weights"] != self._weights:
            raise CommandError(
                f"Triton serves the weights {answer.info['weights']}, "
                f"and {self._weights} are to be scored; export and serve these"
            )
        plates = plates_of(answer, image.numpy())
        self.agreement.add(photo.path.name, self._nets.read(image), plates)
        return plates


@contextmanager
def photos_through_triton(context: Context) -> Iterator[TritonPhotos]:
    """Connect to the Triton of --triton, or start one.

    Raises:
        CommandError: There is none at that address, or it does not start.
    """
    with ExitStack() as stack:
        address = context.arguments.triton or stack.enter_context(_embedded(context))
        runner = stack.enter_context(asyncio.Runner())
        client = runner.run(_connect(address))
        stack.callback(lambda: runner.run(client.__aexit__(None, None, None)))
        yield TritonPhotos(client, runner, context.nets, context.head["weights"])


@contextmanager
def _embedded(context: Context) -> Iterator[str]:
    """Start a Triton on the model repository; yields host:port of its gRPC."""
    from plate_models.export import REPOSITORY, ExportError, export
    from plate_models.weights import WEIGHTS_DIR
    from plates.serving import EmbeddedTriton, EmbeddedTritonError

    if Path(context.arguments.weights or WEIGHTS_DIR).resolve() != WEIGHTS_DIR:
        raise CommandError("--via triton starts a Triton of the released weights; give --triton")
    try:
        export(WEIGHTS_DIR, REPOSITORY)
        server = EmbeddedTriton(REPOSITORY).start()
    except (EmbeddedTritonError, ExportError, OSError) as error:
        raise CommandError(str(error)) from error
    try:
        yield server.grpc_url
    finally:
        server.stop()


async def _connect(address: str) -> "TritonClient":
    return triton_client(address)


def plates_of(answer: "Recognition", image: "np.ndarray[Any, np.dtype[np.uint8]]") -> "list[Plate]":
    """Turn Triton's answer into what the pipeline gives in process.

    Args:
        answer: To one photo.
        image: (H, W, 3) uint8 RGB, the photo.

    Returns:
        The plates. Triton does not tell the lines of text: they are judged by the quad's
        shape; nor is the crop Triton's own, but cut out of the photo along the quad.
    """
    from plate_models.annotate import straighten
    from plate_models.pipeline import Plate
    from plate_models.recognition.decoding import Reading
    from plate_models.spec import DETECTOR, RECTIFIER

    plates = []
    height, width = RECTIFIER.shown_hw
    for row, text in enumerate(answer.texts):
        crop = straighten(image, answer.quads[row])
        scored = zip(answer.candidates[row], answer.candidate_scores[row].tolist(), strict=True)
        candidates = tuple((guess, score) for guess, score in scored if guess)
        reading = Reading(
            text=text,
            score=float(answer.text_scores[row]),
            readable=bool(text),
            format=answer.formats[row],
            characters=(),
            candidates=candidates,
        )
        lines = 1 if crop.shape[1] >= DETECTOR.long_aspect * crop.shape[0] else 2
        shown = np.asarray(cv2.resize(crop, (width, height)), np.uint8)
        x0, y0, x1, y1 = answer.boxes[row].tolist()
        quad = tuple((float(x), float(y)) for x, y in answer.quads[row])
        score = float(answer.detection_scores[row])
        plates.append(Plate((x0, y0, x1, y1), quad, score, lines, reading, shown))
    return plates
