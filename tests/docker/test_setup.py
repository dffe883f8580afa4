"""docker/setup.sh on machines that lack something, with a Python that only takes notes."""

import http.server
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "docker" / "setup.sh"
ON_CPU = pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="a GPU takes another torch")
# Makes environments that hold nothing but itself; without ensurepip, as on Debian without
# python3-venv, only those that need no pip.
FAKE = """#!/bin/bash
here=$(dirname "${BASH_SOURCE[0]}")
make() { mkdir -p "$1/bin" && cp "${BASH_SOURCE[0]}" "$1/bin/python"; }
case "$*" in
    -c*) exit 0 ;;
    --version) echo Python 3.11.0 ;;
    "- "*) exec $REAL "$@" ;;
    "-m pip --version") [ -e "$here/pip" ] ;;
    "-m venv --clear --without-pip "*) echo "$@" >>$LOG; make "${@: -1}" ;;
    "-m venv "*) make "${@: -1}"; [ -z "$NO_ENSUREPIP" ] && touch "${@: -1}/bin/pip" ;;
    "-m pip --python .venv/bin/python "*) echo "$@" >>$LOG; touch .venv/bin/pip ;;
    *) echo "$@" >>$LOG; [[ "$*" != *"$BROKEN"* ]] ;;
esac
"""


@dataclass
class Machine:
    """A clone and a folder of programs, with what setup.sh is told."""

    clone: Path
    programs: Path

    def set_up(self, **environment: str) -> tuple[int, str, list[str]]:
        """The exit status, what was said, and the calls of Python worth noting."""
        log = self.programs / "log"
        told = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "VENV": ".venv",
            "REQUIREMENTS": "docker/requirements",
            "TORCH_INDEX": "",
            "REAL": sys.executable,
            "LOG": str(log),
            "NO_ENSUREPIP": "",
            "BROKEN": "nothing",
        }
        run = subprocess.run(
            ["docker/setup.sh"],
            cwd=self.clone,
            env=told | {"no_proxy": "*"} | environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        calls = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return run.returncode, run.stdout + run.stderr, calls


def make_machine(folder: Path, clone: str = "clone") -> Machine:
    machine = Machine(folder / clone, folder / "programs")
    (machine.clone / "docker").mkdir(parents=True)
    shutil.copy(SETUP, machine.clone / "docker")
    machine.programs.mkdir()
    python = machine.programs / "python3"
    python.write_text(FAKE)
    python.chmod(0o755)
    return machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return make_machine(tmp_path)


@contextmanager
def index(status: int) -> Iterator[str]:
    """A package index that answers every page alike."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/cpu"
        server.shutdown()
        thread.join()


TORCH = "--requirement docker/requirements/torch.txt"
DEV = "--require-hashes --requirement docker/requirements/dev.txt"
INSTALL = "-m pip install -qq"


def test_an_ordinary_machine_is_set_up_once(machine: Machine) -> None:
    everything = [f"{INSTALL} {TORCH}", f"{INSTALL} {DEV}", f"{INSTALL} --no-deps --editable ."]
    assert machine.set_up()[::2] == (0, everything)
    # Nothing but the packages the second time.
    assert machine.set_up()[::2] == (0, everything)


def test_pip_comes_from_outside_where_venv_has_none(machine: Machine) -> None:
    status, _, calls = machine.set_up(NO_ENSUREPIP="1")
    assert status == 0
    assert calls[:2] == [
        "-m venv --clear --without-pip .venv",
        "-m pip --python .venv/bin/python install -qq pip",
    ]


def test_a_moved_environment_still_installs(machine: Machine) -> None:
    machine.set_up()
    pip = machine.clone / ".venv" / "bin" / "pip"
    pip.write_text("#!/where/it/was/.venv/bin/python\n")
    pip.chmod(0o755)
    assert machine.set_up()[0] == 0


def test_a_space_in_the_path_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    machine = make_machine(tmp_path, "my clone")
    status, said, calls = machine.set_up()
    assert status == 1 and calls == []
    assert "has a space" in said and str(machine.clone) in said
    assert not (machine.clone / ".venv").exists()


@ON_CPU
def test_torch_comes_from_its_own_index_with_the_ordinary_patience(machine: Machine) -> None:
    with index(200) as url:
        status, _, calls = machine.set_up(TORCH_INDEX=url)
    assert (status, calls[0]) == (0, f"{INSTALL} --index-url {url} {TORCH}")


@ON_CPU
def test_a_broken_download_of_torch_is_an_error_and_not_the_large_build(machine: Machine) -> None:
    with index(200) as url:
        status, _, calls = machine.set_up(TORCH_INDEX=url, BROKEN="torch.txt")
    assert status != 0
    assert calls == [f"{INSTALL} --index-url {url} {TORCH}"]


@ON_CPU
def test_torch_comes_from_the_ordinary_index_where_its_own_is_shut(machine: Machine) -> None:
    with index(403) as url:
        answers = [machine.set_up(TORCH_INDEX=url)]
    answers.append(machine.set_up(TORCH_INDEX=url))  # nobody listens there any more
    for status, said, calls in answers:
        assert (status, calls[0]) == (0, f"{INSTALL} {TORCH}")
        assert url in said and "ordinary package index" in said
