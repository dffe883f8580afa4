"""Write weights/SHA256SUMS, the manifest whose hash identifies the weights in answers.

Run it after you put new weight files into the folder: files that differ from the manifest are not
loaded.
"""

import argparse

from plate_models.release import check_manifest, write_manifest
from plates.cli.options import add_weights


def configure(parser: argparse.ArgumentParser) -> None:
    add_weights(parser)


def run(arguments: argparse.Namespace) -> None:
    print(write_manifest(arguments.weights), check_manifest(arguments.weights), sep="\n")
