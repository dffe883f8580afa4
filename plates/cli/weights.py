"""Write weights/SHA256SUMS, the manifest by which answers name their weights.

Run it after new weight files were put into the folder; loading refuses files that the
manifest does not know.
"""

import argparse

from plates.cli.options import RELEASED_WEIGHTS, add_weights


def configure(parser: argparse.ArgumentParser) -> None:
    add_weights(parser)


def run(arguments: argparse.Namespace) -> None:
    from plate_models.release import check_manifest, write_manifest

    folder = arguments.weights or RELEASED_WEIGHTS
    print(write_manifest(folder), check_manifest(folder), sep="\n")
