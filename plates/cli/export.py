"""Export weights/ into the model repository as TorchScript and ONNX, checked against the nets.

Does nothing if the repository already contains this export. A running service changes to a higher
version once that version has read its golden photo correctly, and back when the version is removed.
docker/README.md tells how to build TensorRT engines from the ONNX files.
"""

import argparse
from pathlib import Path

from plate_models.release import REPOSITORY
from plate_models.spec import MODEL_VERSION
from plates.cli.options import add_weights


def configure(parser: argparse.ArgumentParser) -> None:
    add_weights(parser)
    text = "model repository (default: model_repository/)"
    parser.add_argument("--repository", type=Path, metavar="DIR", default=REPOSITORY, help=text)
    text = f"model version, from 1; the highest is served (default: {MODEL_VERSION})"
    parser.add_argument("--version", metavar="N", default=MODEL_VERSION, help=text)
    text = "photo with plates that a version must read to be served (default: a rendered scene)"
    parser.add_argument("--golden", type=Path, metavar="PHOTO", help=text)


def run(arguments: argparse.Namespace) -> None:
    from plate_models.engines.nets import ensure_exported

    given = arguments.weights, arguments.repository, arguments.version, arguments.golden
    written = ensure_exported(*given)
    print("\n".join(map(str, written)) or "The model repository is up to date.")
