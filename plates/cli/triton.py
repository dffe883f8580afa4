"""Run Triton alone, watched and healed, until Ctrl-C, SIGTERM or SIGHUP.

The other half of `plates serve` with PLATES_TRITON_URL; the entry point of Triton's container.
The Triton is that of the wheel, or the image's in /opt/tritonserver. Settings are environment
variables: `plates config table` lists them all. Most used are

  PLATES_PROFILE            cpu or gpu: where it runs the nets (cpu)
  PLATES_TRITON_HOST        the address to listen on (127.0.0.1; in a container 0.0.0.0)
  PLATES_MODEL_REPOSITORY   what it serves
  PLATES_STATUS_FILE        where the supervisor writes its status; `plates health` reads it

It ends with a status that is not zero if Triton can't be started, or not be healed.
"""

import argparse

from plates.cli.serve import describe_triton, read_settings, supervise


def configure(_: argparse.ArgumentParser) -> None:
    """There are no arguments: everything is set by the environment."""


def run(_: argparse.Namespace) -> int:
    settings = read_settings()
    return supervise(settings, describe_triton(settings))
