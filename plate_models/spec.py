"""The contract that training, export, the Triton models and the gateway share.

A constant belongs here if it is wrong as soon as the *weights* change. Standard
library only: the gateway imports this file and must not load torch.
"""

from dataclasses import dataclass

MODEL_VERSION = "1"


@dataclass(frozen=True)
class DetectorSpec:
    """YOLOv5: a letterboxed photo in, candidate boxes out.

    Attributes:
        canvases_hw: (H, W) sizes a photo is letterboxed to; the one that shrinks it
            least is taken. Few, so that requests can share a batch. Multiples of 32.
        pad_value: Grey level of the letterbox's bars, in [0, 255].
        max_candidates: Rows of the output; unused rows have score 0.
        classes: Class names in output order.
        anchors_wh: Per stride (8, 16, 32), anchor sizes (w, h) in canvas pixels.
        score_threshold: Candidates below it are dropped.
        iou_threshold: Two boxes that overlap more are one plate.
        long_aspect: A box this many times as wide as high holds one line of text for sure
            if the detector says so; a shorter one is read both ways.
        max_batch_size: Largest batch the exported graph accepts.
        width_multiple, depth_multiple: YOLOv5's scaling factors (nano by default).
    """

    canvases_hw: tuple[tuple[int, int], ...] = ((448, 768), (576, 576), (768, 448))
    pad_value: int = 114
    max_candidates: int = 300
    classes: tuple[str, ...] = ("one_line", "two_lines")
    anchors_wh: tuple[tuple[tuple[float, float], ...], ...] = (
        ((16.0, 6.0), (28.0, 9.0), (34.0, 17.0)),
        ((50.0, 14.0), (62.0, 28.0), (90.0, 24.0)),
        ((112.0, 48.0), (160.0, 42.0), (240.0, 80.0)),
    )
    strides: tuple[int, ...] = (8, 16, 32)
    score_threshold: float = 0.25
    iou_threshold: float = 0.45
    long_aspect: float = 2.0
    max_batch_size: int = 16
    width_multiple: float = 0.25
    depth_multiple: float = 0.33


@dataclass(frozen=True)
class RectifierSpec:
    """STN: a crop around a box in, the plate filling the whole frame out.

    Attributes:
        crop_hw: (H, W) of the crops, whatever the box's shape.
        crop_margin_hw: The box of a one-line plate is widened by these shares of its
            height and width, one half on each side, so that a tilted plate stays inside.
        two_line_margin_hw: The same for two lines: the box is higher, so less is enough.
        rectified_hw: (H, W) of what the recognizer reads: a one-line plate or one row.
        row_spans: Per row of a two-line plate, the shares of its height (from, to) that
            are read; they overlap, because no rectifier is exact.
        shown_hw: (H, W) of the rectified plate that is shown to people.
        look_again_from: A plate that reaches this far from its crop's middle (1 is the
            edge) was cut by its box: it is cropped anew around its quad, once.
        mean, std: Pixels enter as ``(x - mean) / std``.
        max_batch_size: Largest batch the exported graph accepts.
    """

    crop_hw: tuple[int, int] = (64, 160)
    crop_margin_hw: tuple[float, float] = (0.5, 0.3)
    two_line_margin_hw: tuple[float, float] = (0.3, 0.3)
    rectified_hw: tuple[int, int] = (24, 94)
    row_spans: tuple[tuple[float, float], ...] = ((0.0, 0.54), (0.46, 1.0))
    shown_hw: tuple[int, int] = (48, 188)
    look_again_from: float = 0.9
    mean: float = 127.5
    std: float = 128.0
    max_batch_size: int = 32

    def margin_hw(self, lines: int) -> tuple[float, float]:
        """Shares of height and width by which the box of a plate is widened."""
        return self.crop_margin_hw if lines == 1 else self.two_line_margin_hw


@dataclass(frozen=True)
class RecognizerSpec:
    """LPRNet: rectified plates in, per-step character logits out.

    Attributes:
        alphabet: Characters in class order; the CTC blank is class ``len(alphabet)``.
        country: Whose plates are read: the name of a file in ``countries/``.
        steps: Length T of the output sequence.
        min_character_score: A plate is readable if no character scores less and its score
            is high enough: ``Calibration.readable_from`` for a text of known format,
        unknown_readable_from: for one of unknown format. So high that clocks, signs and
            plates seen in part, which the detector finds as well, don't reach it.
        max_text_length: Room for character scores in an answer; a longer text makes more.
        candidates: Texts in an answer, at most.
        max_batch_size: Largest batch the exported graph accepts.
    """

    alphabet: str = "0123456789ABEKMHOPCTYXD"
    country: str = "ru"
    steps: int = 24
    min_character_score: float = 0.6
    unknown_readable_from: float = 0.9999
    max_text_length: int = 10
    candidates: int = 5
    max_batch_size: int = 32

    @property
    def classes(self) -> int:
        """Size of the logits' class axis: every character and the blank."""
        return len(self.alphabet) + 1

    @property
    def blank(self) -> int:
        """Class index of the CTC blank."""
        return len(self.alphabet)


DETECTOR = DetectorSpec()
RECTIFIER = RectifierSpec()
RECOGNIZER = RecognizerSpec()


@dataclass(frozen=True)
class Limits:
    """What a photo may be at most, checked before it is decoded."""

    max_bytes: int = 20 * 1024 * 1024
    max_pixels: int = 64_000_000


LIMITS = Limits()


@dataclass(frozen=True)
class TensorNames:
    """Tensor names of the graphs and of ``plate_recognition``."""

    graph_input: str = "input__0"
    graph_output: str = "output__0"
    theta: str = "output__1"
    pixels: str = "input__0"
    image: str = "image"
    coordinates: str = "coordinates"
    texts: str = "texts"


TENSORS = TensorNames()
