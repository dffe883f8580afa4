"""Export weights/ into the model repository: TorchScript and ONNX, checked against the nets.

Does nothing if the repository holds the same export already. It always writes both formats,
because each model is served from either; TensorRT engines are built from the ONNX files by
docker/tensorrt/build_engines.py.
"""

import argparse
from pathlib import Path

from api.commands import CommandError
from api.commands.options import add_weights


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_weights(parser)
    parser.add_argument("--repository", type=Path, metavar="DIR", help="default: model_repository/")


def run(arguments: argparse.Namespace) -> int:
    """Export and name the artifacts written."""
    from plate_models.export import REPOSITORY, ExportError, export
    from plate_models.weights import WEIGHTS_DIR, WeightsError

    try:
        written = export(arguments.weights or WEIGHTS_DIR, arguments.repository or REPOSITORY)
    except (ExportError, WeightsError) as error:
        raise CommandError(str(error)) from error
    for path in written or ():
        print(path)
    if not written:
        print("The model repository is up to date.")
    return 0
