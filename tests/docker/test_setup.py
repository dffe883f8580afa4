"""docker/setup.sh on machines that lack something, with a fake Python that only logs its calls."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_server import Reply, small_server

SETUP = Path(__file__).resolve().parents[2] / "docker" / "setup.sh"
# A fake Python: its virtual environments contain only itself. With NO_ENSUREPIP it makes, as Debian
# without python3-venv, only environments without pip. In TOO_NEW it is of another version; its uv
# fetches a supported one.
FAKE = """#!/bin/bash
here=$(dirname "${BASH_SOURCE[0]}")
make() { mkdir -p "$1/bin" && cp "${BASH_SOURCE[0]}" "$1/bin/python"; }
case "$*" in
    -c*) [ "$here" != "$TOO_NEW" ] ;;
    "-m pip install -qq uv=="*) cp "${BASH_SOURCE[0]}" $here/uv ;;
    "python install "*) echo "$@" >>$LOG; [ -z "$OFFLINE" ] && make fetched ;;
    "python find "*) echo $PWD/fetched/bin/python ;;
    --version) echo Python 3.11.0 ;;
    "- "*) exec $REAL "$@" ;;
    "-m pip --version") [ -e "$here/pip" ] ;;
    "-m venv --clear --without-pip "*) echo "$@" >>$LOG; make "${@: -1}" ;;
    "-m venv "*) make "${@: -1}"; [ -z "$NO_ENSUREPIP" ] && touch "${@: -1}/bin/pip" ;;
    "-m pip --python .venv/bin/python "*) echo "$@" >>$LOG; touch .venv/bin/pip ;;
    *) echo "$@" >>$LOG; [[ "$*" != *"$BROKEN"* ]] ;;
esac
"""


class Machine:
    """A clone, and a folder of programs with the fake Python."""

    def __init__(self, folder, clone="clone"):
        self.clone, self.programs = folder / clone, folder / "programs"
        (self.clone / "docker").mkdir(parents=True)
        shutil.copy(SETUP, self.clone / "docker")
        self.programs.mkdir()
        for name in ("python3", "python3.11", "python3.12"):
            (self.programs / name).write_text(FAKE)
            (self.programs / name).chmod(0o755)

    def set_up(self, **environment):
        """Run setup.sh; return its exit status, its output, and the logged calls of Python."""
        log = self.programs / "log"
        log.write_text("")
        given = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "REAL": sys.executable,
            "LOG": str(log),
            **{"TORCH_INDEX": "", "NO_ENSUREPIP": "", "BROKEN": "nothing", "no_proxy": "*"},
            **{"TOO_NEW": "", "OFFLINE": ""},
            **{"VENV": ".venv", "REQUIREMENTS": "docker/requirements"},
        }
        options = {"cwd": self.clone, "env": given | environment, "timeout": 60}
        run = subprocess.run(["docker/setup.sh"], capture_output=True, text=True, **options)
        return run.returncode, run.stdout + run.stderr, log.read_text().splitlines()


TORCH = "--requirement docker/requirements/torch.txt"
DEV = "--require-hashes --requirement docker/requirements/dev.txt"
INSTALL = "-m pip install -qq"
EVERYTHING = [f"{INSTALL} {TORCH}", f"{INSTALL} {DEV}", f"{INSTALL} --no-deps --editable ."]


def test_a_clone_is_set_up_and_again_after_it_was_moved(tmp_path):
    machine = Machine(tmp_path)
    assert machine.set_up()[::2] == (0, EVERYTHING)
    pip = machine.clone / ".venv" / "bin" / "pip"
    pip.write_text("#!/where/it/was/.venv/bin/python\n")
    pip.chmod(0o755)
    # The second time only the packages are installed.
    assert machine.set_up()[::2] == (0, EVERYTHING)
    serving = [f"{INSTALL} {DEV.replace('dev', 'triton-cpu')}", EVERYTHING[-1]]
    assert machine.set_up(ROLE="triton-cpu")[::2] == (0, serving)  # no torch


def test_another_pip_installs_pip_if_venv_can_not(tmp_path):
    status, _, calls = Machine(tmp_path).set_up(NO_ENSUREPIP="1")
    assert status == 0
    assert calls[:2] == [
        "-m venv --clear --without-pip .venv",
        "-m pip --python .venv/bin/python install -qq pip",
    ]


def test_a_supported_python_is_fetched_where_there_is_none(tmp_path):
    machine = Machine(tmp_path)
    newer = {"TOO_NEW": str(machine.programs)}
    status, said, calls = machine.set_up(**newer, OFFLINE="1")
    assert status == 1 and "could not be fetched" in said and len(calls) == 1
    status, said, calls = machine.set_up(**newer)
    assert status == 0 and "fetching Python 3.12 into .cache/" in said
    assert calls[0].startswith("python install ") and calls[1:] == EVERYTHING


@pytest.mark.parametrize("clone", ["my clone", "клон"])
def test_a_path_on_which_triton_crashes_is_refused_before_anything_is_made(tmp_path, clone):
    machine = Machine(tmp_path, clone)
    status, said, calls = machine.set_up()
    assert status == 1 and calls == []
    assert "has a space" in said and str(machine.clone) in said
    assert not (machine.clone / ".venv").exists()


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="with a GPU torch is another one")
def test_torch_comes_from_its_own_index_or_if_that_is_unreachable_from_the_default_one(tmp_path):
    machine = Machine(tmp_path)
    with small_server(Reply()) as server:
        url = f"{server.url}/cpu"
        status, _, calls = machine.set_up(TORCH_INDEX=url)
        assert (status, calls[0]) == (0, f"{INSTALL} --index-url {url} {TORCH}")
        # A failed download is an error, because the default build is large.
        status, _, calls = machine.set_up(TORCH_INDEX=url, BROKEN="torch.txt")
        assert (status, calls) == (1, [f"{INSTALL} --index-url {url} {TORCH}"])
    with small_server(Reply(status=403)) as server:
        url = f"{server.url}/cpu"
        answers = [machine.set_up(TORCH_INDEX=url)]
    answers.append(machine.set_up(TORCH_INDEX=url))  # nothing listens at the URL any more
    for status, said, calls in answers:
        assert (status, calls[0]) == (0, f"{INSTALL} {TORCH}")
        assert url in said and "ordinary package index" in said
