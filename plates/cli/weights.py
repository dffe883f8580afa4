"""Write weights/SHA256SUMS, the manifest by which answers name their weights.

Run it after new weight files were put into the folder; loading refuses files that the
manifest does not know.
"""

import argparse

from plate_models.release import check_manifest, write_manifest
from plates.cli.options import add_weights


def configure(parser: argparse.ArgumentParser) -> None:
    add_weights(parser)


def run(arguments: argparse.Namespace) -> None:
    print(write_manifest(arguments.weights), check_manifest(arguments.weights), sep="\n")
