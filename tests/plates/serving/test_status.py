"""The supervisor's status file: whole or not at all."""

from pathlib import Path

import pytest

from api.status import Status, read_status, write_status


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    restarts = {"gateway": 0, "triton": 2, "yolo": 1}
    status = Status("healing", restarts, 3, {"4": "it misreads"})
    write_status(path, Status("starting"))
    write_status(path, status)
    assert read_status(path) == status
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_status(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    write_status(path, Status("ready"))
    with pytest.raises(TypeError):
        write_status(path, Status("ready", {"gateway": object()}))  # type: ignore[dict-item]
    assert read_status(path) == Status("ready")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"state": "ready"}',
        '{"state": "ready", "restarts": []}',
        '{"state": "ready", "restarts": {"triton": "x"}}',
        '{"state": "ready", "restarts": {}, "release": "x"}',
        '{"state": "ready", "restarts": {}, "refused": []}',
        '{"state": "well", "restarts": {}}',
        '{"state": ["ready"], "restarts": {}}',
    ],
)
def test_anything_else_is_no_status(tmp_path: Path, text: str) -> None:
    path = tmp_path / "status.json"
    assert read_status(path) is None
    path.write_text('{"state": "ready", "restarts": {}}')  # as versions before releases wrote it
    assert read_status(path) == Status("ready")
    path.write_text(text)
    assert read_status(path) is None
