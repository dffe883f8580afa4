"""The command in the tests' process, where nothing about a process of its own is tested."""

from subprocess import CompletedProcess
from types import SimpleNamespace

import pytest

from plate_models.engines import nets
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
def run_blind(run, monkeypatch):
    """Run a command with nets that find nothing."""

    def load(engine, device, *_):
        return SimpleNamespace(engine=engine, device=device, read=lambda _: [])

    monkeypatch.setattr(nets, "load_nets", load)
    return run
