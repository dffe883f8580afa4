"""Export weights/ into the model repository: TorchScript and ONNX, checked against the nets.

Does nothing if the repository holds the same export already. A running service takes a release
with a higher version once it has read the release's golden photo; it goes back when the release
is removed. TensorRT engines are built from the ONNX files as docker/README.md says.
"""

import argparse
from pathlib import Path

from plate_models.release import REPOSITORY
from plate_models.spec import MODEL_VERSION
from plates.cli.options import add_weights


def configure(parser: argparse.ArgumentParser) -> None:
    add_weights(parser)
    text = "default: model_repository/"
    parser.add_argument("--repository", type=Path, metavar="DIR", default=REPOSITORY, help=text)
    text = f"of the release, from 1; the highest is served (default: {MODEL_VERSION})"
    parser.add_argument("--version", metavar="N", default=MODEL_VERSION, help=text)
    text = "with plates that the weights read; served only where it reads the same (default: ours)"
    parser.add_argument("--golden", type=Path, metavar="PHOTO", help=text)


def run(arguments: argparse.Namespace) -> None:
    from plate_models.engines.nets import bring_up_to_date

    given = arguments.weights, arguments.repository, arguments.version, arguments.golden
    written = bring_up_to_date(*given)
    print("\n".join(map(str, written)) or "The model repository is up to date.")
