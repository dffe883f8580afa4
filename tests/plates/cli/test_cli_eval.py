"""`plates eval` and `plates compare` as people run them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from photo_files import BAD
from PIL import Image
from support import ELSEWHERE, TritonEndpoints, labelled_set, read_samples

from api.triton import Recognition
from plate_models import weights
from plate_models.recognition.decoding import Reading
from plate_models.training.evaluation.agreement import PhotoAgreement
from plates.cli import main as cli
from plates.cli.eval_triton import disagreements, plates_of

HEAD = ("weights", "engine", "device", "date")
needs_ours = pytest.mark.skipif(
    bool(ELSEWHERE), reason="compares with this clone's weights, and another server is given"
)


def test_eval_scores_draws_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = labelled_set(tmp_path / "set", "green_car.jpg", texts={"X556XM750": "X556XM75"})
    sheet, kept = tmp_path / "sheet.png", tmp_path / "kept.json"
    words = ["eval", "--data", str(data), "--misses", "--sheet", str(sheet), "--json", str(kept)]
    assert cli.main(words) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    values = json.loads(kept.read_text())
    assert first == f"weights {weights.check_manifest()}, engine served on cpu, {values['date']}"
    assert "Failures: 1" in rest and "Wrong readable texts: 1" in rest
    assert values["labelled"]["plates"][0]["failure"] == "misread"
    assert set(values) == {*HEAD, "labelled"}
    with Image.open(sheet) as picture:
        assert picture.format == "PNG"
    assert cli.main(["compare", str(kept), str(kept)]) == 0
    table = capsys.readouterr().out
    assert (
        table.count(f"weights {weights.check_manifest()}, engine served on cpu, ") == 2
        and "end-to-end exact match" in table
    )


def test_eval_names_what_is_wrong_with_the_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "--data", str(tmp_path)]
    assert cli.main(words) == 1
    assert "plates.csv" in capsys.readouterr().err
    (tmp_path / "plates.csv").write_text("image\na.jpg\n")
    assert cli.main(words) == 2
    assert "line 2: no column 'x0'" in capsys.readouterr().err


def test_what_is_rendered_needs_no_data(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PLATES_DATA", raising=False)
    assert cli.main(["eval", "--rendered", "--per-type", "0", "--workers", "0"]) == 0
    assert "Rendered benchmark" in capsys.readouterr().out


def test_an_address_of_triton_that_is_none_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(tmp_path), "--via", "triton", "--triton", "nowhere"]
    assert cli.main(["eval", *words]) == 1
    message = capsys.readouterr().err
    assert "--triton: Value error, 'nowhere' has no port" in message and message.count("\n") == 1


def test_eval_names_a_photo_that_can_not_be_decoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "torn.jpg").write_bytes(BAD["truncated jpeg"][0])
    (tmp_path / "plates.csv").write_text("image,x0,y0,x1,y1\ntorn.jpg,0,0,9,9\n")
    assert cli.main(["eval", "--data", str(tmp_path)]) == 2
    assert f"plates eval: {tmp_path / 'images' / 'torn.jpg'}: " in capsys.readouterr().err


def test_eval_runs_the_parts_that_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled_set(tmp_path / "world_photos", "green_car.jpg", "portrait.jpg", "blue_car.jpg")
    sheet, kept = tmp_path / "sheet.png", tmp_path / "kept.json"
    words = ["eval", "--data", str(tmp_path), "--world", "--sheet", str(sheet), "--json", str(kept)]
    assert cli.main(words) == 0
    assert set(json.loads(kept.read_text())) == {*HEAD, "world"}
    assert "to be looked at" in capsys.readouterr().out
    assert not sheet.exists() and (tmp_path / "sheet-world.png").exists()


def test_compare_refuses_what_is_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    assert cli.main(["compare", str(path), str(path)]) == 2
    assert "a.json: not a report" in capsys.readouterr().err
    # As earlier versions wrote it, which knew one engine only.
    path.write_text(json.dumps({"weights": "", "date": "", "labelled": {"plates": []}}))
    assert cli.main(["compare", str(path), str(path)]) == 1
    assert "no labelled plate in common" in capsys.readouterr().err


QUADS = [
    [[10, 20], [110, 20], [110, 45], [10, 45]],
    [[10, 60], [60, 60], [60, 95], [10, 95]],
]


def recognition(*texts: str) -> Recognition:
    quads = np.array(QUADS[: len(texts)], np.float32).reshape(-1, 4, 2)
    ones = np.ones(len(texts), np.float32)
    return Recognition(
        boxes=np.concatenate((quads.min(axis=1), quads.max(axis=1)), axis=1),
        texts=list(texts),
        detection_scores=ones * 0.75,
        text_scores=ones * 0.5,
        quads=quads,
        character_scores=np.full((len(texts), 10), np.nan, np.float32),
        formats=["ru.car"] * len(texts),
        candidates=[(text or "B", "C", "") for text in texts],
        candidate_scores=np.tile(np.float32([0.5, 0.25, np.nan]), (len(texts), 1)),
        info={},
    )


def test_an_answer_becomes_the_plates_it_tells_of() -> None:
    image = np.zeros((100, 200, 3), np.uint8)
    image[20:45, 10:110] = 200
    assert plates_of(recognition(), image) == []
    first, second = plates_of(recognition("A", ""), image)
    assert first.box == (10, 20, 110, 45) and first.quad[2] == (110, 45)
    assert (first.lines, second.lines) == (1, 2)
    assert first.reading == Reading("A", 0.5, True, "ru.car", (), (("A", 0.5), ("C", 0.25)))
    assert not second.reading.readable and second.reading.candidates[0] == ("B", 0.5)
    assert first.crop.shape == (48, 188, 3) and (first.crop == 200).all()
    assert (second.crop == 0).all()


def test_every_disagreement_is_listed() -> None:
    image = np.zeros((100, 200, 3), np.uint8)
    (plate,) = plates_of(recognition("A"), image)
    (other,) = plates_of(recognition("B"), image)
    x0, *rest = plate.box
    agreement = PhotoAgreement()
    agreement.add("same.jpg", [plate], [replace(plate, box=(x0 + 0.09, *rest))])
    verdict, *differing = disagreements(agreement)
    assert "1 of 1 photos" in verdict and not differing
    agreement.add("moved.jpg", [plate], [replace(plate, box=(x0 + 0.2, *rest))])
    agreement.add("text.jpg", [plate], [other])
    verdict, first, second = disagreements(agreement)
    assert "1 of 3 photos" in verdict
    assert "moved.jpg" in first and "0.20 px" in first and "text.jpg" in second
    assert agreement.to_dict()["answers_that_differ"] == 1


@pytest.mark.live
@needs_ours
@pytest.mark.parametrize("agree", [True, False])
def test_triton_agrees_with_this_process_on_every_sample(
    agree: bool,
    triton: TritonEndpoints,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    samples = read_samples()
    data, kept = labelled_set(tmp_path / "set", *samples), tmp_path / "kept.json"
    words = ["eval", "--data", str(data), "--json", str(kept), "--via", "triton"]
    if not agree:
        monkeypatch.setattr("plates.cli.eval_triton.WITHIN_PX", -1.0)
    assert cli.main([*words, "--triton", triton.grpc_url]) == (0 if agree else 1)
    shown = capsys.readouterr().out
    total = len(samples)
    assert f"Triton agrees with in process: {total if agree else 0} of {total} photos" in shown
    report = json.loads(kept.read_text())["labelled"]
    assert report["via_triton"]["photos"] == total and not report["via_triton"]["differing"]
    # The tables are those of a report in process, from what Triton answered.
    rows = {count["name"]: count for count in report["counts"]}
    assert rows["end-to-end exact match"]["hits"] == sum(map(len, samples.values()))
    assert "end-to-end exact match" in shown
    assert all(answer["guess"] for plate in report["plates"] for answer in plate["answers"])


@pytest.mark.live
@needs_ours
def test_other_weights_than_those_served_are_not_compared(
    triton: TritonEndpoints, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, folder = labelled_set(tmp_path / "set", "green_car.jpg"), tmp_path / "others"
    shutil.copytree(weights.WEIGHTS_DIR, folder)
    (folder / "calibration.json").unlink()
    weights.write_manifest(folder)
    words = ["eval", "--data", str(data), "--via", "triton", "--weights", str(folder)]
    assert cli.main([*words, "--triton", triton.grpc_url]) == 1
    assert "Triton serves the weights sha256:" in capsys.readouterr().err
    assert cli.main(words) == 1
    assert "starts a Triton of the released weights" in capsys.readouterr().err
