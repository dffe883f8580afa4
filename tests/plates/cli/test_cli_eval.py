"""`plates eval` and `plates compare` as people run them."""

import json

import pytest
from photo_files import BAD
from PIL import Image
from support import labelled_set

from plate_models import weights

HEAD = {"weights", "engine", "device", "date"}


def test_eval_scores_draws_and_keeps(run, tmp_path):
    data = labelled_set(tmp_path / "set", "green_car.jpg", texts={"X556XM750": "X556XM75"})
    sheet, kept = tmp_path / "sheet.png", tmp_path / "kept.json"
    done = run("eval", "--data", data, "--misses", "--sheet", sheet, "--json", kept)
    assert done.returncode == 0
    first, *rest = done.stdout.splitlines()
    values = json.loads(kept.read_text())
    assert first == f"weights {weights.check_manifest()}, engine served on cpu, {values['date']}"
    assert "Failures: 1" in rest and "Wrong readable texts: 1" in rest
    assert values["labelled"]["plates"][0]["failure"] == "misread"
    assert values.keys() == HEAD | {"labelled"}
    with Image.open(sheet) as picture:
        assert picture.format == "PNG"
    done = run("compare", kept, kept)
    assert done.returncode == 0 and done.stdout.count(first) == 2
    assert "end-to-end exact match" in done.stdout


def test_eval_runs_the_parts_that_are_asked_for(run, tmp_path, monkeypatch):
    labelled_set(tmp_path / "world_photos", "green_car.jpg", "portrait.jpg", "blue_car.jpg")
    sheet, kept = tmp_path / "sheet.png", tmp_path / "kept.json"
    done = run("eval", "--data", tmp_path, "--world", "--sheet", sheet, "--json", kept)
    assert done.returncode == 0 and "to be looked at" in done.stdout
    assert json.loads(kept.read_text()).keys() == HEAD | {"world"}
    assert not sheet.exists() and (tmp_path / "sheet-world.png").exists()
    # What is rendered needs no data.
    monkeypatch.delenv("PLATES_DATA", raising=False)
    done = run("eval", "--rendered", "--per-type", 0, "--workers", 0)
    assert done.returncode == 0 and "Rendered benchmark" in done.stdout


@pytest.mark.parametrize(
    ("table", "status", "reason"),
    [
        (None, 1, "plates.csv: No such file"),
        ("image\na.jpg\n", 2, "plates.csv, line 2: no column 'x0'"),
        ("image,x0,y0,x1,y1\ntorn.jpg,0,0,9,9\n", 2, "images/torn.jpg: The JPEG"),
    ],
)
def test_eval_names_the_file_that_is_broken(table, status, reason, run, tmp_path):
    data = tmp_path / "no\nwhere"
    (data / "images").mkdir(parents=True)
    (data / "images" / "torn.jpg").write_bytes(BAD["truncated jpeg"][0])
    if table is not None:
        (data / "plates.csv").write_text(table)
    done = run("eval", "--data", data)
    assert done.returncode == status and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"plates eval: {tmp_path}/no\\nwhere/{reason}")


def test_compare_refuses_what_is_no_report(run, tmp_path):
    path = tmp_path / "a.json"
    path.write_text("{}")
    done = run("compare", path, path)
    assert done.returncode == 2 and "a.json: not a report" in done.stderr
    # As earlier versions wrote it, which knew one engine only.
    path.write_text(json.dumps({"weights": "", "date": "", "labelled": {"plates": []}}))
    done = run("compare", path, path)
    assert done.returncode == 1 and "no labelled plate in common" in done.stderr
