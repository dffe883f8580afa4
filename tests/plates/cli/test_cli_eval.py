"""The commands `plates eval` and `plates compare`."""

import json

import pytest
from photo_files import BAD
from support import labelled_set, write_files

from plate_models import release

HEAD = dict.fromkeys(("weights", "engine", "device", "date"), "")


def test_eval_prints_scores_and_writes_a_report_to_compare(run, tmp_path):
    scenes = "green_car.jpg", "two_at_night.jpg"
    data = labelled_set(tmp_path / "set", *scenes)
    table = data / "plates.csv"
    table.write_text(table.read_text().replace("X556XM750", "X556XM75"))
    kept = tmp_path / "kept.json"
    done = run("eval", "--labelled", "--data", data, "--misses", "--json", kept)
    assert done.returncode == 0
    first, *rest = done.stdout.splitlines()
    values = json.loads(kept.read_text())
    assert first == f"weights {release.check_manifest()}, engine served on cpu, {values['date']}"
    assert "Failures: 1" in rest
    (wrong,) = [line for line in rest if "read X556XM750  right X556XM75," in line]
    assert scenes[0] in wrong
    assert values.keys() == {*HEAD, "countries", "rows"} and [*values["rows"]] == ["ru_photos"]
    row = values["rows"]["ru_photos"]
    assert [count["hits"] for count in row["counts"]][:6] == [3, 3, 2, 2, 2, 2]
    assert row["plates"][0]["failure"] == "misread"
    done = run("compare", kept, kept)
    assert done.returncode == 0 and done.stdout.count(first) == 2
    kept.write_text(json.dumps(values | {"countries": "pl,de"}))
    assert f"{first}, countries pl,de\n" in run("compare", kept, kept).stdout
    assert "ru_photos: read right, end to end" in done.stdout


def test_eval_scores_only_the_requested_data_sets(run, tmp_path):
    labelled_set(tmp_path / "world_photos", "green_car.jpg", "portrait.jpg", "blue_car.jpg")
    kept = tmp_path / "kept.json"
    done = run("eval", "--data", tmp_path, "--world", "--json", kept)
    assert done.returncode == 0 and json.loads(kept.read_text())["rows"].keys() == {"world_photos"}
    done = run("eval", "--data", tmp_path, "--latin")
    assert done.returncode == 1 and "latin_photos" in done.stderr


@pytest.mark.parametrize(
    ("table", "status", "reason"),
    [
        (None, 1, "plates.csv: No such file"),
        ("image;x0\na.jpg;0\n", 2, "plates.csv, line 2: no column 'image' in ['image;x0']: sep"),
        ("image,x0,y0,x1,y1\ntorn.jpg,0,0,9,9\n", 2, "images/torn.jpg: The JPEG"),
    ],
)
def test_eval_names_a_broken_file(table, status, reason, run, tmp_path):
    data = write_files(tmp_path / "no\nwhere", {"images/torn.jpg": BAD["truncated jpeg"][0]})
    if table is not None:
        (data / "plates.csv").write_text(table)
    done = run("eval", "--labelled", "--data", data)
    assert done.returncode == status and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"plates eval: {tmp_path}/no\\nwhere/{reason}")


def test_compare_refuses_files_that_are_no_reports(run, tmp_path):
    path = tmp_path / "a.json"
    broken = ({}, [], HEAD, {**HEAD, "rows": 1}, {**HEAD, "rows": {"a": {"plates": [{}]}}})
    for content in (None, b"", b"\xff", *(json.dumps(one).encode() for one in broken)):
        if content is not None:
            path.write_bytes(content)
        done = run("compare", path, path)
        assert done.returncode == 2 and "a.json: not a report" in done.stderr
    path.write_text(json.dumps({**HEAD, "rows": {}}))
    done = run("compare", path, path)
    assert done.returncode == 1 and "no photos in common" in done.stderr
