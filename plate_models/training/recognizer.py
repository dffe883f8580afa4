"""Trains rectifier and recognizer on crops, rendered and real: `plates train recognizer`."""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from plate_models import weights
from plate_models.engines.nets import load_nets
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.pipeline import Plate
from plate_models.pixels import resample, stretch_contrast, to_device, to_host
from plate_models.recognition import ctc
from plate_models.rectification import FRAME, theta_of_rows
from plate_models.release import WeightsError
from plate_models.spec import RECOGNIZER, RECTIFIER
from plate_models.training import imaging
from plate_models.training.crop_cache import CropBatch, CropCache, batch_of
from plate_models.training.imaging import Field, Floats, Image
from plate_models.training.labels import LabelError, load_world_photos
from plate_models.training.run import Experiment, Run, autocast
from plate_models.training.splicing import draw_spliced, strips_of
from plate_models.training.synthetic.crops import CropSample, crop_around, render_crop
from plate_models.training.synthetic.photo import camera, photograph

# The second camera, which degrades crops further.
_AGAIN = camera("again")
# Real crops, and spliced ones, per rendered one if there is a data folder; crops per plate; per
# false detection.
_REAL_SHARE, _SPLICED_SHARE, _PLATE_CROPS, _CLUTTER_CROPS = 0.8, 1.0, 16, 6
# A person's text is looked for among this many texts of the recognizer.
_BEAM = 1000
# In photos that no person checked, readings with a lower score are wrong too often. In all photos,
# narrower plates (in pixels) are illegible.
_LEAST_SCORE, _LEAST_PX = 0.8, 38.0


@dataclass(frozen=True, kw_only=True)
class RecognizerTraining(Experiment):
    """One experiment with rectifier and recognizer."""

    folder: Annotated[Path, "checkpoints, to resume from, and curves"] = Path("runs/recognizer")
    cache: Annotated[Path, "rendered crops"] = Path(".cache/crops")
    minutes: Annotated[float, "length of the training, all its runs together"] = 90.0
    crops: Annotated[int, "size of the rendered training set"] = 200_000
    data: Annotated[Path | None, "folder with world_photos/: real plates to learn, too"] = None
    held_out: Annotated[int, "held-out rendered crops, for the exact match"] = 1000
    workers: Annotated[int, "processes that render crops"] = 1
    batch_size: Annotated[int, "crops per optimizer step"] = 64
    peak_rate: Annotated[float, "highest learning rate of AdamW"] = 1.5e-3
    corner_weight: Annotated[float, "of the rectifier's corner loss; the CTC loss has 1"] = 2.0
    # In use, plates are not rectified perfectly.
    theta_noise: Annotated[float, "standard deviation of the noise added to theta"] = 0.02
    # The recognizer can learn nothing from plates until the rectifier straightens them.
    rectifier_first: Annotated[float, "share of the minutes for the rectifier alone"] = 0.05
    report_every: Annotated[int, "steps between two reports"] = 1000
    start_from: Annotated[Path | None, "folder of weights; a net without a file starts anew"] = None
    seed: Annotated[int, "of the rendered crops and of the order of training"] = 50577


class Reader(nn.Module):
    """Rectifier and recognizer as one module, for one optimizer and one weight average."""

    def __init__(self) -> None:
        super().__init__()
        self.stn = STN(RECTIFIER)
        self.lprnet = LPRNet(RECOGNIZER)

    @property
    def nets(self) -> dict[str, nn.Module]:
        """Both nets by the names of their weights' files."""
        return {"rectifier": self.stn, "recognizer": self.lprnet}

    def forward(
        self, crops: Tensor, lines: Tensor, theta_noise: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """Read (N, 3, H, W) normalised crops with (N,) lines of text.

        Returns (R, C, T) float32 logits of all rows in the order of :func:`row_labels`, and
        (N, 2, 3) float32 theta, without the noise.
        """
        theta = self.stn.locate(crops).float()
        # Detached, because the rectifier learns from corners alone: the text loss's gradient
        # through the sampler is so noisy that it undoes that learning (docs/experiments.md).
        noisy = theta.detach() + theta_noise * torch.randn_like(theta)
        one, two, spans = lines == 1, lines == 2, RECTIFIER.row_spans
        thetas = to_device(theta_of_rows(to_host(noisy[two]), spans), crops.device)
        shown = torch.cat((crops[one], crops[two].repeat_interleave(len(spans), dim=0)))
        plates = resample(shown, torch.cat((noisy[one], thetas)), RECTIFIER.rectified_hw)
        return self.lprnet(plates).float(), theta


def row_labels(batch: CropBatch) -> NDArray[np.int64]:
    """(R, L) int64 classes: of all one-line plates, then of both rows of each two-line plate."""
    two = batch.lines == 2
    flat = batch.labels[two].reshape(-1, batch.labels.shape[2])
    return np.concatenate((batch.labels[~two, 0], flat))


def text_loss(logits: Tensor, batch: CropBatch) -> Tensor:
    """Mean CTC loss per character, a scalar."""
    labels: Tensor = to_device(row_labels(batch), logits.device)
    lengths = (labels >= 0).sum(dim=1)
    log_probs = logits.permute(2, 0, 1).log_softmax(dim=2)
    steps = torch.full_like(lengths, log_probs.shape[0])
    return F.ctc_loss(
        log_probs, labels.clamp_min(0), steps, lengths, logits.shape[1] - 1, zero_infinity=True
    )


def corner_loss(theta: Tensor, batch: CropBatch) -> Tensor:
    """Mean error of the corners' coordinates, as a share of half the crop's side."""
    height, width = RECTIFIER.crop_hw
    corners: Tensor = to_device(batch.quads, theta.device)
    wanted = corners * theta.new_tensor((2 / width, 2 / height)) - 1
    return (theta.new_tensor(FRAME) @ theta.mT - wanted).abs().mean()


def vary(batch: CropBatch, rng: np.random.Generator) -> CropBatch:
    """Move a random half of the crops a little, and photograph a random half again.

    Rendering a crop takes as long as learning from it, so a training uses each crop several times.
    """
    images, quads = batch.images.copy(), batch.quads.copy()
    for row, (image, quad) in enumerate(zip(batch.images, batch.quads, strict=True)):
        if rng.random() < 0.5:
            image, quads[row] = _moved(image, quad, rng)
        images[row] = photograph(image, rng, _AGAIN) if rng.random() < 0.5 else image
    return CropBatch(images, quads, batch.labels)


def _moved(image: Image, quad: Field, rng: np.random.Generator) -> tuple[Image, Floats]:
    """Rotate, stretch and shift a crop and the plate's corners a little."""
    height, width = image.shape[:2]
    middle, change = imaging.shift_by(width / 2, height / 2), np.eye(3)
    change[:2, :2] += rng.normal(0, 0.03, (2, 2))
    change[:2, 2] = rng.normal(0, 0.015, 2) * (width, height)
    view = middle @ change @ np.linalg.inv(middle)
    return imaging.warp(image, view, (width, height)), imaging.apply_homography(view, quad)


def to_input(
    images: NDArray[np.uint8], device: str, rng: np.random.Generator | None = None
) -> Tensor:
    """Normalise crops as in serving; with a generator, also vary brightness and contrast.

    Returns (N, 3, H, W) float32 on the device, channels last in memory.
    """
    given: Tensor = to_device(images, device)
    pixels: Tensor = stretch_contrast(given.permute(0, 3, 1, 2).float())
    if rng is None:
        return pixels.sub_(RECTIFIER.mean).div_(RECTIFIER.std)
    count = (len(images), 1, 1, 1)
    gain = rng.uniform(0.6, 1.25, count) * rng.uniform(0.95, 1.05, (len(images), 3, 1, 1))
    shift = rng.uniform(-20, 20, count) - RECTIFIER.mean
    # On the hot path: one multiplication and one addition over all pixels.
    factor, term = (to_device(v / RECTIFIER.std, device).float() for v in (gain, shift))
    return pixels.mul_(factor).add_(term)


@torch.no_grad()
def exact_match(reader: nn.Module, batch: CropBatch, device: str) -> dict[int, float]:
    """Share of plates whose greedily decoded text is right, by lines of text."""
    right: dict[int, list[bool]] = {1: [], 2: []}
    for start in range(0, len(batch.images), 100):
        part = batch.part(slice(start, start + 100))
        logits, _ = reader(to_input(part.images, device), to_device(part.lines, device))
        rows = [
            ctc.encode(ctc.greedy_decode(ctc.log_softmax(row))) == label[label >= 0].tolist()
            for row, label in zip(to_host(logits), row_labels(part), strict=True)
        ]
        ones = int((part.lines == 1).sum())
        right[1] += rows[:ones]
        right[2] += [a and b for a, b in zip(rows[ones::2], rows[ones + 1 :: 2], strict=True)]
    return {count: float(np.mean(hits)) if hits else 0.0 for count, hits in right.items()}


def take_over(net: nn.Module, file: weights.WeightsFile) -> None:
    """Initialise a net from trained weights; those of a recognizer may be of a smaller one.

    Additional blocks and steps of this net change nothing at first; additional characters start
    from random values.

    Raises:
        WeightsError: The weights' alphabet has a character that this net's alphabet lacks, or a
            tensor has another shape.
    """
    known = file.contract.get("alphabet", "")
    if lacking := sorted(set(known) - set(RECOGNIZER.alphabet)):
        raise WeightsError(f"{file.path}: knows {lacking}, which spec.py's alphabet lacks")
    rows, classes = [*map(RECOGNIZER.alphabet.index, known), -1], RECOGNIZER.classes
    state = net.state_dict()
    for key, values in file.state.items():
        own = state.get(key)
        if own is None or own.shape[1:] != values.shape[1:]:
            raise WeightsError(f"{file.path}: {key}: no such tensor in this net")
        if known and key.startswith("head."):
            # (steps of a column, classes, ...); additional steps start as copies of the file's.
            new, old = own.unflatten(0, (-1, classes)), values.unflatten(0, (-1, len(rows)))
            new[:, rows] = old.repeat_interleave(len(new) // len(old), dim=0)
        else:
            own.copy_(values)


def read_crops(data: Path, start_from: Path, seed: int) -> CropBatch:
    """Crop plates that the given weights read in ``world_photos``' training part, and clutter.

    A plate's label is the candidate that a person read, too, or in photos that no person checked,
    the readable text if its score is high enough. Clutter is false detections marked by a person.

    Raises:
        FileNotFoundError: The data folder lacks world_photos/plates.csv.
        LabelError: No reading is sure enough.
        WeightsError: The weights can't be used, or one of the nets is missing.
    """
    nets, rng = load_nets("torch", folder=start_from), np.random.default_rng(seed)
    alphabet, samples = nets.config.specs.recognizer.alphabet, list[CropSample]()

    def cut(quad: Floats, rows: tuple[str, ...], times: int) -> None:
        for _ in range(times):
            crop, corners = crop_around(photo, quad, len(rows), rng)
            samples.append(CropSample(crop, corners, rows))

    for labelled in tqdm(load_world_photos(data, held_out=False), "reading photos"):
        photo, findings = labelled.read(), labelled.findings
        for plate in nets.read(photo):
            text, quad = _learnt_text(plate, findings.texts, alphabet), np.array(plate.quad)
            if text and np.ptp(quad[:, 0]) >= _LEAST_PX:
                cut(quad, _rows_of(text, plate, alphabet), _PLATE_CROPS)
        for x0, y0, x1, y1 in findings.mistaken:
            cut(np.add(imaging.box_corners(x1 - x0, y1 - y0), (x0, y0)), ("",), _CLUTTER_CROPS)
    if not any(sample.text for sample in samples):
        raise LabelError(f"{data / 'world_photos'}: no plate there is surely read")
    return batch_of(samples)


def _learnt_text(plate: Plate, checksums: tuple[int, ...] | None, alphabet: str) -> str:
    """The text to learn: one that a person saw, too, or a sure one; "" if there is none."""
    reading = plate.reading
    if checksums is None:
        return reading.text if reading.score >= _LEAST_SCORE else ""
    listed = ctc.beam_decode(plate.log_probs, alphabet, _BEAM) if checksums else []
    texts = (text for text, _ in (*reading.candidates, *listed))
    return next((text for text in texts if zlib.crc32(text.encode()) in checksums), "")


def _rows_of(text: str, plate: Plate, alphabet: str) -> tuple[str, ...]:
    """Split a text into the plate's lines, where both rows (see `ctc.join_rows`) fit it best."""
    if plate.lines == 1:
        return (text,)
    seam = plate.log_probs.shape[1] // 2
    upper, lower = plate.log_probs[:, :seam], plate.log_probs[:, seam + 1 :]
    cuts = range(1, len(text))
    first = ctc.text_probabilities(upper, [text[:cut] for cut in cuts], alphabet)
    second = ctc.text_probabilities(lower, [text[cut:] for cut in cuts], alphabet)
    cut = cuts[int(np.multiply(first, second).argmax())]
    return text[:cut], text[cut:]


class Training(Run[CropBatch]):
    """The training of rectifier and recognizer."""

    config: RecognizerTraining
    net: Reader

    def __init__(self, config: RecognizerTraining) -> None:
        torch.manual_seed(config.seed)
        reader = Reader()
        if config.start_from:
            files = {name: config.start_from / f"{name}.safetensors" for name in reader.nets}
            if not (found := [name for name, file in files.items() if file.exists()]):
                raise WeightsError(f"{config.start_from}: has weights of neither net")
            for name in found:
                take_over(reader.nets[name], weights.read_file(files[name]))
        super().__init__(config, reader, [{"params": reader.parameters(), "weight_decay": 1e-2}])

    def step(self, batch: CropBatch) -> dict[str, float]:
        """Learn from one batch; returns loss and corner loss."""
        config, device = self.config, self.config.device
        rng = np.random.default_rng((config.seed, self.steps, 1))  # not the generator of `draw`
        crops = to_input(batch.images, device, rng)
        with autocast(device):
            if self.progress < config.rectifier_first:
                corner = loss = corner_loss(self.net.stn.locate(crops).float(), batch)
            else:
                logits, theta = self.net(crops, to_device(batch.lines, device), config.theta_noise)
                corner = corner_loss(theta, batch)
                loss = text_loss(logits, batch) + config.corner_weight * corner
        self.learn(loss, len(batch.images), most_gradient=5.0)
        return {"loss": loss.item(), "corner": corner.item()}


def train(config: RecognizerTraining) -> dict[int, float]:
    """Train until the minutes are used, then write the weights.

    Returns:
        Exact match of the averaged weights on held-out rendered crops, by lines of text.
    """
    start = config.start_from
    if config.data and not start:
        raise WeightsError("--data needs --start-from: the weights that read the plates there")
    cache = CropCache(config.cache, config.seed)
    with cache.rendering(config.crops, config.workers) as rendered:
        rng = np.random.default_rng(config.seed - 1)
        held_out = batch_of([render_crop(rng) for _ in range(config.held_out)])
        real = read_crops(config.data, start, config.seed) if config.data and start else None
        if real and start:
            known = LPRNet(RECOGNIZER).eval()
            take_over(known, weights.read_file(start / "recognizer.safetensors"))
            one_line = np.flatnonzero((real.lines == 1) & (real.labels[:, 0, 0] >= 0))
            strips = strips_of(real.part(one_line[::_PLATE_CROPS]), known)
        training = Training(config)

        def draw(rng: np.random.Generator) -> CropBatch:
            batch = cache.draw(rng, config.batch_size)
            if real:
                rows = rng.integers(0, len(real.images), round(_REAL_SHARE * config.batch_size))
                spliced = draw_spliced(strips, rng, round(_SPLICED_SHARE * config.batch_size))
                batch = CropBatch.of((batch, real.part(rows), *spliced))
            return vary(batch, rng)

        def check() -> dict[str, float]:
            match = exact_match(training.averaged, held_out, config.device)
            return {"rendered": rendered(), "one_line": match[1], "two_lines": match[2]}

        training.use_up(draw, check)
        match = exact_match(training.averaged, held_out, config.device)
        read = "; world_photos (training part): plates as confirmed or surely read, and clutter"
        summary = {
            "data": "rendered crops" + (read if real else ""),
            "seed": config.seed,
            "rendered_exact_match_by_lines": {k: round(v, 4) for k, v in match.items()},
        }
        training.release(cast(Reader, training.averaged.module).nets, summary)
        return match
