"""The command in the tests' process, where nothing about a process of its own is tested."""

from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest

from plate_models.engines import nets
from plate_models.recognition.decoding import Reading
from plates.cli import main as cli


@pytest.fixture
def run(capsys):
    """Run a command: its words to its exit status, stdout and stderr."""

    def run(*words):
        try:
            status = cli.main([str(word) for word in words])
        except SystemExit as done:  # argparse's
            status = int(done.code or 0)
        shown = capsys.readouterr()
        return CompletedProcess(words, status, shown.out, shown.err)

    return run


@pytest.fixture
def run_stub(run, monkeypatch):
    """Run a command with nets that find the plate A001AA77 in every photo."""
    reading = Reading("A001AA77", 0.9, True, "ru.car", (("A", 0.9),), (("A001AA77", 0.9),))
    quad = ((2, 2), (22, 2), (22, 7), (2, 7))
    plate = SimpleNamespace(box=(2, 2, 22, 7), quad=quad, detection_score=0.75, reading=reading)

    def load(engine, device, *_):
        return SimpleNamespace(engine=engine, device=device, read=lambda _: [plate])

    monkeypatch.setattr(nets, "load_nets", load)
    return run
