"""Run a supervised Triton alone, until Ctrl-C, SIGTERM or SIGHUP.

It serves gateways: `plates serve` with PLATES_TRITON_URL. This is the entry point of Triton's
container. Triton is that of the wheel nvidia-pytriton, or that of NVIDIA's image in
/opt/tritonserver. The exit status is not zero if Triton can't be started, or keeps failing.
Settings are environment variables, such as PLATES_TRITON_HOST (0.0.0.0 in a container); `plates
config table` lists them.
"""

import argparse

from plates.cli.serve import read_settings, supervise


def configure(_: argparse.ArgumentParser) -> None:
    """Declare no arguments: the environment has all settings."""


def run(_: argparse.Namespace) -> None:
    supervise(read_settings())
