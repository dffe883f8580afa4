"""Follow cameras and videos in this process: one event for each vehicle that passes.

A source is an address (rtsp://, or http:// of an MJPEG stream), a video file, or a device such as
/dev/video0. The command prints a table; or with --json one JSON object per event (`pass.updated` as
soon as the text of a plate is sure, `pass.ended` once for each pass); or with --csv one row per
pass. It follows a camera until Ctrl-C, reconnecting when the stream ends, and a file to its end.
"""

import argparse
import os
from contextlib import ExitStack
from pathlib import Path

from plates.cli import CommandError, stop_signals_raise
from plates.cli.options import add_nets, add_number, load_nets


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object per event")
    output.add_argument("--csv", action="store_true", help="one row per pass")
    text = "folder for a video of each source with its plates drawn in"
    parser.add_argument("--annotate", type=Path, metavar="DIR", help=text)
    text = "CSV file of known plates; may be given several times"
    parser.add_argument("--list", type=Path, metavar="FILE", action="append", default=[], help=text)
    add_number(parser, "--fps", 5, "frames per second to read", least=1)
    add_nets(parser)


def run(arguments: argparse.Namespace) -> None:
    """Follow the sources; raises the error of a source once the other sources have ended."""
    from plate_models.release import check_manifest
    from plates.cameras import watch
    from plates.cameras.lists import PlateList
    from plates.cameras.sources import file_path

    for path in arguments.list:
        path.open("rb").close()  # raises OSError, where the list would only log it
    lists = [PlateList(path.stem, path) for path in arguments.list]
    nets = load_nets(arguments)
    weights = check_manifest(arguments.weights)
    with stop_signals_raise(), ExitStack() as stack:
        cameras = watch.open_cameras(arguments.sources, arguments.fps, lists, nets, weights)
        outputs: list[watch.Output] = []
        if arguments.json:
            outputs.append(watch.print_json)
        elif arguments.csv:
            print(*watch.CSV_COLUMNS, sep=",")
            outputs.append(watch.print_csv)
        else:
            outputs.append(stack.enter_context(watch.live_table()))
        if arguments.annotate:
            files = [Path(p) for p in map(file_path, arguments.sources) if os.path.exists(p)]
            for path in (arguments.annotate / f"{passes.camera}.mp4" for _, passes in cameras):
                if path.exists() and any(map(path.samefile, files)):
                    raise CommandError(f"{path} would be replaced: give --annotate another folder")
            videos = watch.annotated_videos(arguments.annotate, arguments.fps)
            outputs.append(stack.enter_context(videos))
        watch.follow_all(cameras, nets, outputs)
