"""A fixture for commands that need no process of their own: they run in the tests' process."""

from subprocess import CompletedProcess

import pytest

from plates.cli import main as cli


@pytest.fixture
def run(capsys):
    """A function that runs a command and returns its exit status, stdout and stderr."""

    def run(*words):
        try:
            status = cli.main([str(word) for word in words])
        except SystemExit as done:  # raised by argparse
            status = int(done.code or 0)
        shown = capsys.readouterr()
        return CompletedProcess(words, status, shown.out, shown.err)

    return run
