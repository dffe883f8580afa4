"""An invented country, from its definition to readings: nothing works for Russia only."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from api.answers import answer_of
from plate_models import formats, release, weights
from plate_models.nets.lprnet import LPRNet
from plate_models.recognition import countries
from plate_models.recognition.grammar import FormatError
from plate_models.spec import DETECTOR, RECOGNIZER, Specs
from plate_models.training.crop_cache import batch_of
from plate_models.training.recognizer import Reader, take_over, text_loss, to_input
from plate_models.training.synthetic import kinds
from plate_models.training.synthetic.crops import CropStyle, render_crop
from plate_models.training.synthetic.photo import PhotoStyle
from plate_models.training.synthetic.plates import PlateStyle
from plate_models.training.synthetic.scenes import paint_plate

COUNTRIES = Path(__file__).resolve().parent / "countries"
COUNTRY = countries.read_country(COUNTRIES / "xx.toml")[1]
OTHER = replace(RECOGNIZER, alphabet=COUNTRY.alphabet, countries=("xx",), steps=24)
SPECS = Specs(recognizer=OTHER)
# Clean plates in good light, as the training takes only a few seconds.
CLEAN = dict.fromkeys(("hidden_share", "worn_share", "dirty_share", "snowy_share"), 0)
EASY = CropStyle(
    (("xx.car", 0.6), ("xx.moped", 0.4)),
    width_px=(110, 200),
    two_line_width_px=(80, 130),
    plate=PlateStyle(screw_shares=(0.5, 0), **CLEAN),
    photo=PhotoStyle(dark_share=0, shadow_share=0, glare_share=0, motion_share=0, noise=(0.4, 3)),
    **dict.fromkeys(("steep_share", "tilt_share", "infrared_share", "sloppy_share"), 0),
)


def train():
    """Teach the released recognizer the country's alphabet, in a few seconds."""
    torch.manual_seed(0)
    reader = Reader()
    for name, net in reader.nets.items():
        take_over(net, weights.read_file(release.WEIGHTS_DIR / f"{name}.safetensors"))
    # The other layers see strokes, as in any alphabet: training them takes five times as long.
    reader.eval().requires_grad_(False)
    net.head = LPRNet(SPECS.recognizer).head
    net.steps_per_column = 1
    rng = np.random.default_rng(0)
    optimizer = torch.optim.AdamW(net.head.parameters())
    crops = [[render_crop(rng, EASY) for _ in range(16)] for _ in range(30)]
    batches = [batch_of(samples, COUNTRY.alphabet) for samples in crops]
    for step, batch in enumerate(3 * batches):
        optimizer.param_groups[0]["lr"] = 5e-3 * (1 - step / (3 * len(batches)))
        logits, _ = reader(to_input(batch.images, "cpu"), torch.from_numpy(batch.lines))
        optimizer.zero_grad()
        text_loss(logits, batch).backward()
        torch.nn.utils.clip_grad_norm_(net.head.parameters(), 5.0)
        optimizer.step()
    return reader


@pytest.fixture(scope="module", autouse=True)
def installed_country():
    """Make the tests' folder of countries the one that the package reads."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (formats, countries):
            patch.setattr(module, "COUNTRIES", COUNTRIES)
        formats.grammar_of.cache_clear()
        yield
    formats.grammar_of.cache_clear()


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    """Nets with weights of that country."""
    folder = tmp_path_factory.mktemp("weights")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for name, net in train().nets.items():
        weights.save(net, name, {"data": "rendered crops"}, folder, SPECS)
    torch.set_num_threads(threads)
    shutil.copy(release.WEIGHTS_DIR / "detector.safetensors", folder)
    release.write_manifest(folder)
    return weights.load_modules(folder)


@pytest.mark.parametrize("kind", ["xx.car", "xx.moped"])
def test_plates_of_the_country_are_read_with_region_and_native_text(nets, kind):
    right = 0
    for seed in range(6):
        photo = np.full((*DETECTOR.canvases_hw[0], 3), 100, np.uint8)
        photo[200:250, 300:480] = 220
        rng = np.random.default_rng(100 + seed)
        painted, quad, rows = paint_plate(photo, np.float32([300, 200, 480, 250]), rng, kind)

        def detect(canvases, quad=quad, rows=rows):
            candidates = torch.zeros(1, DETECTOR.max_candidates, 6)
            hull = *quad.min(axis=0), *quad.max(axis=0)
            if not (canvases[0, :, 0] == DETECTOR.pad_value).all():  # not in the smaller photo
                candidates[0, 0] = torch.tensor([*hull, 0.9, len(rows) - 1])
            return candidates

        plates = replace(nets, detect=detect).read(painted)
        if [plate.reading.text for plate in plates] != [text := "".join(rows)]:
            continue
        right += 1
        (plate,) = plates
        answer = answer_of(plate.reading, plate.box, plate.quad, plate.detection_score)
        assert answer.format == kind and answer.region is not None
        assert answer.region.name == COUNTRY.regions[text[:2]]
        assert answer.text_native == text.replace("S", "Š")
    assert right >= 5


SHORT = """
[country]
name = "yy"
alphabet = "012LRZЖ"
letters = "LR"

[[formats]]
name = "yy.cart"
patterns = ["LL 'Z'## / ##"]
ground = "white"
never = ["00"]
sizes_mm = [[200, 100]]

[formats.plate]
typefaces = ["any.ttf"]
"""

LOOKS = 'sizes_mm = [[200, 100]]\n\n[formats.plate]\ntypefaces = ["any.ttf"]'
LAYOUT = """
[[formats.plate.layouts]]
size_mm = [9, 9]
serial = []
region = { centres = [1, 2, 3, 4, 5, 6, 7], foot = 9 }
"""


def write_and_load_kinds(folder, source, monkeypatch):
    (folder / "yy.toml").write_text(source, encoding="utf-8")
    monkeypatch.setattr(countries, "COUNTRIES", folder)
    return kinds.kinds_of.__wrapped__("yy")


def test_the_weights_first_country_is_drawn_with_the_common_outlines(monkeypatch):
    monkeypatch.setattr(kinds, "RECOGNIZER", SPECS.recognizer)
    assert kinds.kinds_of.__wrapped__("xx").keys() == {"xx.car", "xx.moped"}


def test_a_plate_set_in_a_typeface_needs_only_sizes_and_typefaces(tmp_path, monkeypatch):
    kind = write_and_load_kinds(tmp_path, SHORT, monkeypatch)["yy.cart"]
    assert kind.format.aspects == (2,) and kind.typefaces == ("any.ttf",) and not kind.layouts
    assert kind.rows("LRZ1220") == ("LR Z12", "20") and kind.smallest_mm == (200, 100)
    monkeypatch.setattr(kinds, "kind_named", lambda _: kind)
    rng = np.random.default_rng(0)
    drawn = {kinds.sample_text(rng, "yy.cart") for _ in range(60)}
    assert all(re.fullmatch("[LR]{2}Z(?!00)[012]{2}(?!00)[012]{2}", text) for text in drawn)
    assert len(drawn) > 20


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("typefaces", "speed = 1\ntypefaces", r"yy\.toml: format 'yy\.cart': plate\.speed: Unexp"),
        ("[200, 100]", "[200]", r"formats\[0\]\.sizes_mm\[0\]\[1\]: Field required"),
        ('"any.ttf"', "3", r"plate\.typefaces\[0\]: expected a valid string, found 3"),
        ("never", 'band = "right"\nnever', r"band: expected 'left', 'top' or 'none'"),
        ("typefaces", "shares.training = inf\ntypefaces", r"training: .* a finite number"),
        ('typefaces = ["any.ttf"]', "", r"\['Ж'\] need 'layouts', or 'typefaces' with them"),
        ("typefaces", "looseness = -1\ntypefaces", r"plate\.looseness: expected .* equal to 0"),
        ("typefaces", 'busy_regions = ["Q"]\ntypefaces', r"plate\.busy_regions: \['Q'\] are not"),
        ("sizes_mm = [[200, 100]]", "", "expected either 'layouts' or"),
        (LOOKS, LAYOUT, r"yy\.toml: plate\.outlines: no outlines of \['L', 'Z', 'Ж'\]"),
        (LOOKS, LAYOUT.replace("[1, ", "["), r"plate: no layout has \[7\] characters"),
    ],
)
def test_malformed_plate_definitions_are_refused(tmp_path, monkeypatch, old, new, reason):
    assert old in SHORT
    with pytest.raises(FormatError, match=reason):
        write_and_load_kinds(tmp_path, SHORT.replace(old, new), monkeypatch)
