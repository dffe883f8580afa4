"""A country made up here, from its one file to a reading: nothing is Russian-only."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from api.answers import answer_of
from plate_models import formats
from plate_models.nets.lprnet import LPRNet
from plate_models.pipeline import PipelineConfig, read_plates
from plate_models.recognition import countries, ctc
from plate_models.recognition.calibration import UNCALIBRATED
from plate_models.recognition.grammar import FormatError
from plate_models.spec import DETECTOR, RECOGNIZER, Specs
from plate_models.training.crop_cache import render_batch
from plate_models.training.recognizer import Reader, text_loss, to_input
from plate_models.training.synthetic.crops import CropStyle
from plate_models.training.synthetic.kinds import PlateKind, kinds_of
from plate_models.training.synthetic.texts import sample_text

COUNTRIES = Path(__file__).resolve().parent / "countries"
COUNTRY = countries.load_country(COUNTRIES / "xx.toml")
SPECS = Specs(
    recognizer=replace(RECOGNIZER, alphabet=COUNTRY.alphabet, countries=("xx",), steps=24)
)


@pytest.fixture(scope="module", autouse=True)
def at_home():
    """The country's file lies where countries lie."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (formats, countries):
            patch.setattr(module, "COUNTRIES", COUNTRIES)
        formats.grammar_of.cache_clear()
        yield
    formats.grammar_of.cache_clear()


def test_its_plates_are_rendered_and_a_net_of_its_alphabet_trains_on_them():
    style = CropStyle((("xx.car", 0.6), ("xx.moped", 0.4)))
    reader = Reader()
    reader.lprnet = LPRNet(SPECS.recognizer)
    batch = render_batch(np.random.default_rng(0), 8, style, COUNTRY.alphabet)
    assert set(batch.lines.tolist()) == {1, 2}
    logits, _ = reader(to_input(batch.images), torch.from_numpy(batch.lines))
    assert logits.shape[1] == len(COUNTRY.alphabet) + 1
    text_loss(logits, batch).backward()
    assert reader.lprnet.head.weight.grad.abs().sum() > 0


def detector_of(lines: int):  # type: ignore[no-untyped-def]
    def detect(_: Tensor) -> Tensor:
        candidates = torch.zeros(1, DETECTOR.max_candidates, 6)
        candidates[0, 0] = torch.tensor([300, 200, 480, 250, 0.9, lines - 1])
        return candidates

    return detect


def rectify(crops: Tensor) -> tuple[Tensor, Tensor]:
    theta = torch.tensor([[0.8, 0, 0], [0, 0.8, 0]])
    return crops[:, :, :24, :94], theta.expand(len(crops), 2, 3)


def recognizer_of(rows: tuple[str, ...]):  # type: ignore[no-untyped-def]
    """Sees the rows of a plate, which come last; the same plate taken for one row shows nothing."""

    def recognize(plates: Tensor) -> Tensor:
        logits = torch.zeros(len(plates), SPECS.recognizer.classes, SPECS.recognizer.steps)
        logits[:, -1] = 12.0
        for seen, row in zip(logits[-len(rows) :], rows, strict=True):
            seen[ctc.encode(row, COUNTRY.alphabet), range(1, 2 * len(row), 2)] = 24.0
        return logits

    return recognize


@pytest.mark.parametrize("kind", ["xx.car", "xx.moped"])
def test_its_plates_are_read_and_answered(kind):
    config, photo = PipelineConfig.of(SPECS, UNCALIBRATED), torch.zeros(448, 768, 3).byte()
    for seed in range(6):
        text = sample_text(np.random.default_rng(seed), kind)
        rows = tuple(row.replace(" ", "") for row in kinds_of("xx")[kind].rows(text))
        nets = detector_of(len(rows)), rectify, recognizer_of(rows)
        (plate,) = read_plates(photo, *nets, config)
        answer = answer_of(plate)
        assert (answer.text, answer.format) == (text, kind)
        assert answer.region is not None
        assert answer.region.name == COUNTRY.regions[text[:2]]
        assert answer.text_native == text.replace("S", "Š")


SHORT = """
[country]
name = "yy"
alphabet = "012LRZ"
letters = "LR"

[[formats]]
name = "yy.cart"
patterns = ["LL 'Z'## / ##"]
ground = "white"
never = ["00"]

[formats.plate]
sizes_mm = [[200, 100]]
typefaces = ["any.ttf"]
"""


def kinds_in(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, PlateKind]:
    (folder / "yy.toml").write_text(source, encoding="utf-8")
    monkeypatch.setattr(countries, "COUNTRIES", folder)
    return kinds_of.__wrapped__("yy")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("sizes_mm", "speed = 1\nsizes_mm", r"yy\.toml: format 'yy\.cart': plate\.speed: Unexp"),
        ("sizes_mm", 'band = "right"\nsizes_mm', r"plate\.band: expected 'left', 'top' or 'none'"),
        ('sizes_mm = [[200, 100]]\ntypefaces = ["any.ttf"]', "", "expected either 'layouts' or"),
        (
            'sizes_mm = [[200, 100]]\ntypefaces = ["any.ttf"]',
            "layouts = [{ size_mm = [9, 9], serial = [], region = { centres = [1], foot = 9 } }]",
            r"yy\.toml: plate\.outlines: there are none of \['L', 'Z'\]",
        ),
    ],
)
def test_malformed_plates_are_refused_by_name(tmp_path, monkeypatch, old, new, reason):
    assert old in SHORT
    with pytest.raises(FormatError, match=reason):
        kinds_in(tmp_path, SHORT.replace(old, new), monkeypatch)
