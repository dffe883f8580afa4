"""Write weights/SHA256SUMS, the manifest by which answers name their weights.

Run it after new weight files were put into the folder; loading refuses files that the
manifest does not know.
"""

import argparse

from plates.cli import CommandError
from plates.cli.options import add_weights


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_weights(parser)


def run(arguments: argparse.Namespace) -> int:
    """Write the manifest and print its hash."""
    from plate_models.weights import WEIGHTS_DIR, check_manifest, write_manifest

    folder = arguments.weights or WEIGHTS_DIR
    try:
        print(write_manifest(folder))
    except OSError as error:
        raise CommandError(str(error)) from error
    print(check_manifest(folder))
    return 0
