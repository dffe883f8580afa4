"""`cameras.toml`: settings, defaults, messages that name all problems; lists of known plates."""

import os
from pathlib import Path

import pytest
from camera_events import SIGNING_KEY
from support import ROOT, write_files

from plates.cameras.lists import PlateList
from plates.cameras.settings import CameraSettingsError, load


def write(folder, text):
    (folder / "residents.csv").write_text("plate\n")
    (file := folder / "cameras.toml").write_text(text)
    return file


def test_the_example_is_valid(tmp_path, monkeypatch):
    monkeypatch.setenv("GATE_PASSWORD", "hunter2")
    monkeypatch.setenv("BROKER_PASSWORD", "hunter3")
    monkeypatch.setenv("WEBHOOK_SECRET", SIGNING_KEY)
    file = load(write(tmp_path, (ROOT / "docker/cameras.example.toml").read_text()))
    assert file.storage.url.get_secret_value() == f"sqlite:///{tmp_path}/plates.db"
    gate, yard = file.cameras
    assert gate.source.get_secret_value() == "rtsp://viewer:hunter2@192.168.1.20/stream1"
    assert (gate.zones["drive"][0], gate.crop) == ((0.1, 0.4), (0, 0, 1, 1))
    assert gate.lists == ("residents",)
    assert yard.source is None
    # A camera without a list of targets has all targets.
    assert yard.targets == tuple(target.name for target in file.targets)
    kinds = [target.kind for target in file.targets]
    assert kinds == ["webhook", "plate_recognizer", "mqtt", "jsonl", "csv"]
    assert "hunter" not in repr(file)


def test_storage_is_off_by_default(tmp_path):
    storage = load(write(tmp_path, "cameras = []")).storage
    assert (storage.texts, storage.pictures) == (False, False)
    assert storage.url.get_secret_value() == f"sqlite:///{tmp_path}/plates.db"
    for url in ("sqlite:////tmp/p.db", "sqlite:////tmp/me@a..b:c.db"):
        elsewhere = load(write(tmp_path, f'cameras = []\nstorage.url = "{url}"')).storage
        assert elsewhere.url.get_secret_value() == url
    with pytest.raises(CameraSettingsError, match=r"storage\.url: .*written to .*, found /nowhere"):
        load(write(tmp_path, 'cameras = []\nstorage.url = "sqlite:////nowhere/p.db"'))


def test_files_to_write_must_be_writable_and_files_to_read_readable(tmp_path, monkeypatch):
    write_files(tmp_path, {"log": b"", "plates.db": b"", "db/old": b""})
    monkeypatch.setattr(os, "access", lambda path, _: path not in (tmp_path, tmp_path / "db/old"))
    target = '[[targets]]\nname = "log"\nkind = "jsonl"\npath = "{}"\n'
    elsewhere = 'cameras = []\nstorage.url = "sqlite:////tmp/p.db"\n'
    assert load(write(tmp_path, elsewhere + target.format("log"))).targets
    old = 'cameras = []\nstorage.url = "sqlite:///db/old"'
    for settings in (elsewhere + target.format("new"), "cameras = []", old):
        with pytest.raises(CameraSettingsError, match=r"written to .*/var/lib/plates\), found"):
            load(write(tmp_path, settings))
    addresses = ["u@h/db?sslmode=require", "u:hunter@2@h/db", "u:hunt@er/2@h/db", "h/db"]
    addresses += [f"u:hunter2@{server}/db" for server in ("h:x", "h:99999", "h..i")]
    for address in addresses:
        with pytest.raises(CameraSettingsError, match=r"storage\.url: [^2]*$"):
            load(write(tmp_path, f'cameras = []\nstorage.url = "postgresql://{address}"'))
    path = write(tmp_path, elsewhere + '[lists]\nresidents = "residents.csv"')
    load(path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(CameraSettingsError, match="residents: expected a file that can be read"):
        load(path)
    monkeypatch.setenv("PLATES_CAMERAS_BESIDE", str(tmp_path))  # in a service's processes
    assert load(path).lists


def test_an_error_names_all_problems_at_once_without_passwords(tmp_path):
    with pytest.raises(CameraSettingsError) as problem:
        load(write(tmp_path, Path(__file__).with_name("wrong.toml").read_text()))
    message = str(problem.value)
    settings = """
        storage.url storage.dayz lists.staff targets.hook.webhook.url targets.hook.webhook.secret
        targets.typo.mqtt.url targets.slash.plate_recognizer.url targets.port.plate_recognizer.url
        targets.dots.mqtt.url cameras.gate-1.sourc cameras.gate-1.targets cameras.gate/2.name
    """
    for expected in (
        *(f"{setting}: " for setting in settings.split()),
        "targets.hub: Input tag 'mqqt'",
        "targets.lines.jsonl.path: expected a file of its own, found '.'",
        "targets.known.csv.path: expected a file of its own, found './residents.csv'",
        "targets.again.csv.path: expected a file of its own, found 'passes.log'",
        "targets.hub: expected one of this name, found 2",
        "targets.hub.webhook.url: expected an environment variable 'NOWHERE', found none",
        "cameras.gate-1.zones.drive.1.0: Input should be less than or equal to 1, found 1.2",
        "cameras.gate-1.zones.rows: expected an area, with its corners in the order",
        "cameras.gate-1.lists: expected ['residents', 'staff'], found ['resident']",
        "cameras.gate-1: expected one of this name, found 2",
        "cameras.gate-1.fps: Input should be greater than 0, found 0",
        "cameras.gate-1.crop.3: Field required",
        "cameras.gate/2.crop: expected left, top, right, bottom in shares of the picture, found",
    ):
        assert expected in message
    assert "hunter2" not in message


def test_files_that_are_no_tables_are_refused_without_passwords(tmp_path):
    for text in (
        'cameras = ["rtsp://admin:hunter2@camera"]',
        'storage = "postgresql://plates:hunter2@db/plates"',
        '[[cameras]]\nname = "gate"\nsource = ["rtsp://admin:hunter2@camera"]',
        *("", "cameras = [", "[[targets]]\nname = [1]"),
    ):
        with pytest.raises(CameraSettingsError, match="cameras") as problem:
            load(write(tmp_path, text))
        assert "hunter2" not in str(problem.value), text
    with pytest.raises(CameraSettingsError, match=r"missing\.toml can't be read"):
        load(tmp_path / "missing.toml")


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
