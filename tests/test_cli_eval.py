"""`plates eval` and `plates compare` as people run them."""

import json
from pathlib import Path

import pytest
from evaluation_cases import labelled_set
from PIL import Image
from plates.cli.eval_parts import PARTS, Part

from plate_models.weights import check_manifest
from plates.cli import main as cli

HEAD = ("weights", "engine", "device", "date")


def test_eval_scores_draws_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = labelled_set(tmp_path / "set", "green_car.jpg", texts={"X556XM750": "X556XM75"})
    sheet, kept = tmp_path / "sheet.png", tmp_path / "kept.json"
    words = ["eval", "--data", str(data), "--misses", "--sheet", str(sheet), "--json", str(kept)]
    assert cli.main(words) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    values = json.loads(kept.read_text())
    assert first == f"weights {check_manifest()}, engine served on cpu, {values['date']}"
    assert "Failures: 1" in rest and "Wrong readable texts: 1" in rest
    assert values["labelled"]["plates"][0]["failure"] == "misread"
    assert set(values) == {*HEAD, "labelled"}
    with Image.open(sheet) as picture:
        assert picture.format == "PNG"
    assert cli.main(["compare", str(kept), str(kept)]) == 0
    table = capsys.readouterr().out
    assert (
        table.count(f"weights {check_manifest()}, engine served on cpu, ") == 2
        and "end-to-end exact match" in table
    )


def test_eval_refuses_before_the_work_what_would_fail_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path)
    assert cli.main(["eval", "--data", data, "--json", str(tmp_path / "no" / "a.json")]) == 1
    assert "its folder does not exist" in capsys.readouterr().err
    assert cli.main(["eval", "--rendered", "--per-type", "-1"]) == 1
    assert "--per-type: expected 0 or more" in capsys.readouterr().err
    assert cli.main(["eval", "--data", data]) == 1
    assert "plates.csv" in capsys.readouterr().err
    (tmp_path / "plates.csv").write_text("image\na.jpg\n")
    assert cli.main(["eval", "--data", data]) == 2
    assert "line 2: no column 'x0'" in capsys.readouterr().err


def test_eval_needs_data_for_what_is_scored_on_photos(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PLATES_DATA", raising=False)

    class Nothing:
        def lines(self) -> list[str]:
            return ["nothing scored"]

        def to_dict(self) -> dict[str, object]:
            return {}

    part = Part(lambda _: Nothing(), "without photos", needs_data=False)
    monkeypatch.setitem(PARTS, "made_up", part)
    assert cli.main(["eval", "--made_up"]) == 0
    assert capsys.readouterr().out.endswith("nothing scored\n")
    assert cli.main(["eval", "--made_up", "--world"]) == 1
    assert "PLATES_DATA" in capsys.readouterr().err


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
