"""Runs the command in the tests' process, for tests that need no process of its own."""

from subprocess import CompletedProcess

import pytest

from plates.cli import main as cli


@pytest.fixture
def run(capsys):
    """Run a command by its words; returns its exit status, stdout and stderr."""

    def run(*words):
        try:
            status = cli.main([str(word) for word in words])
        except SystemExit as done:  # argparse's
            status = int(done.code or 0)
        shown = capsys.readouterr()
        return CompletedProcess(words, status, shown.out, shown.err)

    return run
