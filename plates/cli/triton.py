"""Run Triton alone, watched and healed, until Ctrl-C, SIGTERM or SIGHUP.

The other half of `plates serve` with PLATES_TRITON_URL; the entry point of Triton's container.
The Triton is that of the wheel, or the image's in /opt/tritonserver. `plates config table` lists
the settings, environment variables such as PLATES_TRITON_HOST (0.0.0.0 in a container).
It ends with a status that is not zero if Triton can't be started, or not be healed.
"""

import argparse

from plates.cli.serve import read_settings, supervise


def configure(_: argparse.ArgumentParser) -> None:
    """There are no arguments: everything is set by the environment."""


def run(_: argparse.Namespace) -> None:
    supervise(read_settings())
