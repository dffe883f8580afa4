"""Lists of known plates: spellings, malformed lines, changes of the file, near texts."""

import os

import pytest

from plates.cameras.lists import PlateList

CAR, OTHER = "X556XM750", "B840CK197"


@pytest.mark.parametrize(
    "written",
    [
        "plate\nx556xm 750\nB840CK197\n",
        "Х556ХМ 750\nВ 840 СК-197\n",  # Cyrillic
        "\ufeffowner;Plate ;since\nIvanova;X556XM750;1,5\nPetrov;B840CK197;2,5\n",
        "sep=;\nowner;plate\nIvanova;X556XM750\nPetrov;B840CK197\n",  # Excel's first line
        "\n# people\nX556XM750,Ivanova\n\nB840CK197\n",
    ],
)
def test_plates_are_found_in_any_common_spelling_and_encoding(tmp_path, written):
    path = tmp_path / "residents.csv"
    path.write_text(written, encoding="utf-8")
    residents = PlateList("residents", path)
    assert residents.near([CAR]) == {CAR} and residents.near([OTHER]) == {OTHER}
    path.write_text("Х556ХМ750;x\nВ840СК197;y\n", encoding="cp1251")  # as a Russian Excel saves it
    assert PlateList("excel", path).near([CAR, OTHER]) == {CAR, OTHER}
    path.write_text("АІ1234ВК\nTÜ-AB 123\n", encoding="utf-8")  # Ukrainian, German
    assert PlateList("guests", path).near(["AI1234BK", "TUAB123"]) == {"AI1234BK", "TUAB123"}


def test_the_log_names_malformed_lines_by_number_and_the_others_are_used(tmp_path, caplog):
    path = tmp_path / "residents.csv"
    # A quote that isn't closed, no plate, bytes of another encoding, a cell of a million letters.
    path.write_bytes(b'X556XM750\n"A1\n??\n\xc0\xc1\n' + b"A" * 10**6 + b"\nB840CK197\n")
    residents = PlateList("residents", path)
    assert residents.near([CAR, OTHER]) == {CAR, OTHER}
    assert [f"line {number} " in caplog.text for number in range(1, 7)] == [0, 1, 1, 1, 1, 0]
    assert "A1" not in caplog.text  # A malformed line may be the owner's name: it is not logged.


def test_a_list_follows_changes_of_its_file(tmp_path, monkeypatch, caplog):
    path = tmp_path / "residents.csv"
    missing = PlateList("residents", path)  # when a camera's process is started again
    assert missing.near([CAR]) == set() and "residents.csv" in caplog.text
    path.touch()
    assert PlateList("residents", path).near([CAR]) == set()
    path.write_text(CAR)
    residents = PlateList("residents", path)
    path.write_text(OTHER)
    os.utime(path, ns=(0, 0))
    assert residents.near([CAR, OTHER]) == {CAR}  # the file is not checked at each frame
    monkeypatch.setattr("plates.cameras.lists._CHECK_EVERY_S", 0.0)
    assert residents.near([CAR, OTHER]) == missing.near([CAR, OTHER]) == {OTHER}
    path.unlink()
    assert residents.near([OTHER]) == {OTHER} and "stays" in caplog.text


def test_near_texts_differ_by_at_most_one_character(tmp_path):
    (tmp_path / "residents.csv").write_text(f"{CAR}\nX55OXM750\nOK1\n")
    residents = PlateList("residents", tmp_path / "residents.csv")
    assert all(residents.near([text]) == {CAR} for text in ("X556XM75", "X556XM7501"))
    assert residents.near(["X558XM750"]) == {CAR, "X55OXM750"} and residents.near(["OK1"])
    assert residents.near([OTHER, "X999XM750"]) == set()
