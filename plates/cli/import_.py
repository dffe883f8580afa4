"""Convert other projects' weights to this project's format: safetensors with their specification.

No code of a checkpoint is executed: its tensors are read; a file that needs more is refused.
"""

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    nets = parser.add_subparsers(dest="net", required=True, metavar="NET")
    detector = nets.add_parser("yolov5", help="a YOLOv5 checkpoint: n to x, one or two classes")
    detector.add_argument("file", type=Path, metavar="FILE", help=".pt or .safetensors")
    reader = nets.add_parser("recognizer", help="an LPRNet and STN of another alphabet")
    reader.add_argument("lprnet", type=Path, metavar="LPRNET", help="state dict of the LPRNet")
    reader.add_argument("stn", type=Path, metavar="STN", help="state dict of the STN")
    text = "characters in the order of the classes, without the blank"
    reader.add_argument("--alphabet", required=True, metavar="ABC", help=text)
    text = "files in countries/; the first country's plates are the likeliest (default: ru)"
    reader.add_argument("--country", default="ru", metavar="NAME[,NAME]", help=text)
    for net in (detector, reader):
        net.add_argument("--out", type=Path, required=True, metavar="DIR", help="output folder")


def run(arguments: argparse.Namespace) -> None:
    from plate_models.training.importing import import_recognizer, import_yolov5

    out = arguments.out
    if arguments.net == "yolov5":
        print(import_yolov5(arguments.file, out))
    else:
        about = arguments.alphabet, out, arguments.country.split(",")
        nets = arguments.lprnet, arguments.stn
        print(*import_recognizer(*nets, *about), sep="\n")
    print(f"Next, write the manifest: plates weights --weights {out}")
