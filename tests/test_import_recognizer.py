"""A recognizer and its rectifier for another alphabet become weights."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from plate_models import weights
from plate_models.importing import import_recognizer
from plate_models.nets.lprnet import LPRNet
from plate_models.nets.stn import STN
from plate_models.spec import RecognizerSpec
from plates.cli import main as cli

ALPHABET = "0123456789ÅÄÖ"


@pytest.fixture
def nets(tmp_path: Path) -> tuple[LPRNet, STN]:
    torch.manual_seed(0)
    lprnet, stn = LPRNet(RecognizerSpec(alphabet=ALPHABET)).eval(), STN().eval()
    nn.init.normal_(stn.localization[-1].weight, std=0.05)
    torch.save(lprnet.state_dict(), tmp_path / "lprnet.pt")
    save_file(stn.state_dict(), tmp_path / "stn.safetensors")
    return lprnet, stn


def test_imported_weights_compute_what_they_did(
    tmp_path: Path, nets: tuple[LPRNet, STN], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine"
    files = (str(tmp_path / "lprnet.pt"), str(tmp_path / "stn.safetensors"))
    assert (
        cli.main(["import", "recognizer", *files, "--alphabet", ALPHABET, "--out", str(out)]) == 0
    )
    shutil.copy(weights.WEIGHTS_DIR / "detector.safetensors", out)
    assert cli.main(["weights", "--weights", str(out)]) == 0
    assert "recognizer.safetensors" in capsys.readouterr().out
    modules = weights.load_modules(out)
    assert modules.specs.recognizer.alphabet == ALPHABET
    crops = torch.rand(2, 3, 64, 160) * 2 - 1
    with torch.inference_mode():
        plates, theta = modules.rectify(crops)
        assert torch.equal(theta, nets[1](crops)[1])
        assert torch.equal(modules.recognize(plates), nets[0](plates))


def test_a_country_without_formats_is_refused(tmp_path: Path, nets: tuple[LPRNet, STN]) -> None:
    files = (tmp_path / "lprnet.pt", tmp_path / "stn.safetensors")
    with pytest.raises(weights.WeightsError, match=r"country: .*nowhere\.toml"):
        import_recognizer(*files, ALPHABET, tmp_path / "mine", country="nowhere")


@pytest.mark.parametrize(
    ("files", "alphabet", "message"),
    [
        (("lprnet.pt", "stn.safetensors"), "ABC", r"lprnet\.pt: head\.weight: expected \(4, "),
        (("stn.safetensors", "lprnet.pt"), ALPHABET, r"stem\.0\.weight: .* found no such tensor"),
        (("lprnet.pt", "lprnet.pt"), ALPHABET, r"localization\.0\.0\.weight: .*no such tensor"),
        (("lprnet.pt", "stn.safetensors"), ALPHABET[:-1] + "0", "alphabet: expected every"),
        (("lprnet.pt", "stn.safetensors"), "", "alphabet: expected from 1"),
        (("lprnet.pt", "none.pt"), ALPHABET, r"none\.pt: can't be read"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_written(
    tmp_path: Path,
    nets: tuple[LPRNet, STN],
    files: tuple[str, str],
    alphabet: str,
    message: str,
) -> None:
    out = tmp_path / "mine"
    with pytest.raises(weights.WeightsError, match=message):
        import_recognizer(tmp_path / files[0], tmp_path / files[1], alphabet, out)
    assert not out.exists()
