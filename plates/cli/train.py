"""Train one of the nets; the same command again resumes a training that was stopped.

Curves and checkpoints go to the run's folder, and so do the finished weights, unless --release
names another folder. `plates train detector --help` lists the options of that training.
"""

import argparse
import fcntl
from collections.abc import Callable
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any, get_args, get_type_hints

from plates.cli import CommandError
from plates.cli.options import add_number

NETS = ("detector", "recognizer")  # each a module of plate_models.training


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("net", choices=NETS)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see `plates train NET --help`")


def run(arguments: argparse.Namespace) -> None:
    from plate_models.engines.nets import check_engine

    train, config = parse_options(arguments.net, arguments.options)
    check_engine("torch", config.device)
    for folder in filter(None, (config.folder, config.release)):
        folder.mkdir(parents=True, exist_ok=True)  # Fail now, not after hours.
    with (config.folder / ".lock").open("w") as lock:
        try:  # two trainings would overwrite each other's checkpoint
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            message = "another training uses it: wait for it, or give another --folder"
            raise CommandError(f"{config.folder}: {message}") from error
        print(train(config))


def parse_options(net: str, words: list[str]) -> tuple[Callable[[Any], object], Any]:
    """Import a training, and parse the options into its configuration, a frozen dataclass.

    Each field of the dataclass is an option; its annotation is the help text.
    """
    train = import_module(f"plate_models.training.{net}").train
    config_class = get_type_hints(train)["config"]
    parser = argparse.ArgumentParser(prog=f"plates train {net}", description=f"Train the {net}.")
    types = get_type_hints(config_class, include_extras=True)
    for field in fields(config_class):
        hint, text = get_args(types[field.name])
        (kind,) = [kind for kind in get_args(hint) if kind is not type(None)] or [hint]
        option = f"--{field.name.replace('_', '-')}"
        if field.default is MISSING:
            parser.add_argument(option, type=kind, required=True, help=text)
        elif kind in (int, float):
            # Photos, threads and steps must not be 0.
            least = 1 if kind is int and field.name not in ("seed", "loaders") else 0
            add_number(parser, option, field.default, text, least)
        else:
            text = f"{text} (default: {field.default})"
            parser.add_argument(option, type=kind, default=field.default, help=text)
    return train, config_class(**vars(parser.parse_args(words)))
