"""A country made up here, from its format file to a reading: nothing is Russian-only."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from api.answers import plate_from
from plate_models import formats, weights
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.pipeline import PipelineConfig, read_plates
from plate_models.recognition import ctc
from plate_models.recognition.countries import load_country
from plate_models.spec import DETECTOR, RECOGNIZER, RECTIFIER, Specs
from plate_models.training.crop_cache import CropBatch
from plate_models.training.recognizer import text_loss, to_input

COUNTRIES = Path(__file__).resolve().parent / "countries"
COUNTRY = load_country(COUNTRIES / "xx.toml")
SPECS = Specs(recognizer=replace(RECOGNIZER, alphabet=COUNTRY.alphabet, countries=("xx",)))
BOARD_WH = (520, 112)
Pixels = np.ndarray


def draw_board(text: str) -> Pixels:
    """A white board with a frame and equally spaced characters, (112, 520, 3) uint8."""
    board = np.full((*BOARD_WH[::-1], 3), 245, np.uint8)
    cv2.rectangle(board, (3, 3), (516, 108), (20, 20, 20), 4)
    for place, char in enumerate(text):
        corner = (30 + 80 * place, 90)
        cv2.putText(board, char, corner, cv2.FONT_HERSHEY_SIMPLEX, 2.8, (15, 15, 15), 8)
    return board


def see_rectified(text: str, rng: np.random.Generator) -> Pixels:
    """The board as an imperfect rectifier leaves it, (24, 94, 3) uint8."""
    width, height = BOARD_WH
    corners = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
    off = corners + rng.uniform(-1, 1, (4, 2)) * (16, 5)
    height, width = RECTIFIER.rectified_hw
    frame = np.float32([[0, 0], [width, 0], [width, height], [0, height]])
    transform = cv2.getPerspectiveTransform(off.astype(np.float32), frame)
    seen = cv2.warpPerspective(
        draw_board(text), transform, (width, height), None, cv2.INTER_AREA, cv2.BORDER_REPLICATE
    )
    return cv2.GaussianBlur(seen, (3, 3), rng.uniform(0.3, 0.8))


def make_text(rng: np.random.Generator) -> str:
    letters = "".join(rng.choice(list(COUNTRY.letters), 2))
    return f"{rng.choice(list(COUNTRY.regions))}{letters}{rng.integers(100):02}"


def make_batch(rng: np.random.Generator, count: int) -> tuple[CropBatch, list[str]]:
    texts = [make_text(rng) for _ in range(count)]
    labels = np.full((count, 2, RECOGNIZER.max_text_length), -1)
    for row, text in zip(labels, texts, strict=True):
        row[0, : len(text)] = ctc.encode(text, COUNTRY.alphabet)
    images = np.stack([see_rectified(text, rng) for text in texts])
    return CropBatch(images, np.zeros((count, 4, 2), np.float32), labels), texts


def train() -> LPRNet:
    """Teach our released recognizer another alphabet, in a few seconds."""
    torch.manual_seed(0)
    net = LPRNet(SPECS.recognizer)
    ours = weights.read_file(weights.WEIGHTS_DIR / "recognizer.safetensors").state
    body = {key: value for key, value in ours.items() if not key.startswith("head.")}
    net.load_state_dict(body, strict=False)
    # Edges and corners are those of any alphabet; learning them anew takes twice the time.
    for known in (net.stem, net.first):
        known.requires_grad_(False)
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(p for p in net.parameters() if p.requires_grad)
    steps = 50
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 1.2e-3 * (1 - step / steps)
        batch, _ = make_batch(rng, 16)
        loss = text_loss(net(to_input(batch.images)), batch)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
    return net


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[weights.Modules]:
    """Weights of that country, whose file lies where countries lie."""
    folder = tmp_path_factory.mktemp("weights")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    weights.save(train(), "recognizer", {"data": "boards"}, folder, SPECS)
    torch.set_num_threads(threads)
    # Untrained, a rectifier takes the box for the plate: right for boards that hang straight.
    weights.save(STN(), "rectifier", {}, folder, SPECS)
    shutil.copy(weights.WEIGHTS_DIR / "detector.safetensors", folder)
    weights.write_manifest(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "COUNTRIES", COUNTRIES)
        formats.grammar_of.cache_clear()
        yield weights.load_modules(folder)
    formats.grammar_of.cache_clear()


@pytest.mark.parametrize("text", ["N3SW07", "Q5ZF41"])
def test_a_photo_is_read_from_the_box_to_the_answer(modules: weights.Modules, text: str) -> None:
    height, width = DETECTOR.canvases_hw[0]
    photo = np.full((height, width, 3), 128, np.uint8)
    photo[200:243, 300:500] = cv2.resize(draw_board(text), (200, 43), None, 0, 0, cv2.INTER_AREA)

    def detect(canvases: torch.Tensor) -> torch.Tensor:
        candidates = torch.zeros(1, DETECTOR.max_candidates, 6)
        candidates[0, 0] = torch.tensor([300.0, 200.0, 500.0, 243.0, 0.9, 0.0])
        return candidates

    config = PipelineConfig.of(modules.specs, modules.calibration)
    with torch.inference_mode():
        nets = (detect, modules.rectify, modules.recognize)
        (plate,) = read_plates(torch.from_numpy(photo), *nets, config)
    assert (plate.reading.text, plate.reading.format) == (text, "xx.car")
    answer = plate_from(
        text=plate.reading.text,
        score=plate.reading.score,
        format_name=plate.reading.format,
        box=plate.box,
        quad=plate.quad,
        detection_score=plate.detection_score,
        characters=plate.reading.characters,
        candidates=plate.reading.candidates,
    )
    assert answer.region is not None
    assert answer.region.name == COUNTRY.regions[text[:2]]
    assert answer.text_native == text.replace("S", "Š")
