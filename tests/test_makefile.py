"""When `make` sets up a clone again."""

import os
import subprocess

from support import ROOT, write_files

# Files of a clone that was set up.
FILES = [
    *("Makefile", "pyproject.toml", "docker/setup.sh", "docker/requirements/dev.txt"),
    *("docker/requirements/torch.txt", ".venv/.setup", ".venv/bin/plates"),
]


def test_a_clone_that_changed_or_was_moved_is_set_up_again(tmp_path):
    def would_set_up():
        command = ["make", "-q", "-C", tmp_path, ".venv/.setup"]
        status = subprocess.run(command, capture_output=True).returncode
        assert status in (0, 1)
        return bool(status)

    write_files(tmp_path, dict.fromkeys(FILES, (ROOT / "Makefile").read_bytes()))
    for moment, name in enumerate(FILES):
        os.utime(tmp_path / name, (moment, moment))
    for place in (tmp_path, tmp_path.parent):  # scripts contain the clone's path
        (tmp_path / FILES[-1]).write_text(f"#!{place}/.venv/bin/python\n")
        assert would_set_up() == (place != tmp_path)
    (tmp_path / FILES[-1]).unlink()
    for name in FILES[:5]:
        assert not would_set_up()
        os.utime(tmp_path / name)
        assert would_set_up(), name
        os.utime(tmp_path / name, (0, 0))
