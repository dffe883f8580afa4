"""Train one of the nets; a second run goes on where the first one stopped.

Curves and checkpoints go to the run's folder. The finished weights are written there, too,
and become the released ones when they are copied into weights/ (see CONTRIBUTING.md).
"""

import argparse
import inspect
import logging
from dataclasses import MISSING, Field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

# Subcommand: module and its configuration.
TRAININGS = {
    "detector": ("plate_models.training.detector", "DetectorTraining"),
    "recognizer": ("plate_models.training.recognizer", "RecognizerTraining"),
}
_SIMPLE = (int, float, str, Path)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare which nets there are; each one's options are its experiment's fields."""
    parser.add_argument("net", choices=sorted(TRAININGS))
    parser.add_argument(
        "options",
        nargs=argparse.REMAINDER,
        help="of the experiment: plates train detector --help lists them",
    )


def run(arguments: argparse.Namespace) -> int:
    """Train."""
    module_name, class_name = TRAININGS[arguments.net]
    module = import_module(module_name)
    config = parse_options(getattr(module, class_name), arguments.net, arguments.options)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    print(module.train(config))
    return 0


def parse_options(config_class: type[Any], net: str, words: list[str]) -> Any:
    """Turn command-line options into an experiment.

    Args:
        config_class: A frozen dataclass; its fields of simple types become options.
        net: Its name in messages.
        words: The options as typed.

    Returns:
        An instance of `config_class`.

    Raises:
        SystemExit: With status 2 on an unknown option, a missing one or a bad value.
    """
    parser = argparse.ArgumentParser(
        prog=f"plates train {net}",
        description=inspect.getdoc(config_class),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    types = get_type_hints(config_class)
    for field in fields(config_class):
        kind = _simple_type(types[field.name])
        if kind is not None:
            _add_option(parser, field, kind)
    return config_class(**vars(parser.parse_args(words)))


def _simple_type(hint: Any) -> type[Any] | None:
    """The type to parse, also of `Path | None`; None where no option makes sense."""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)] or [hint]
    return kinds[0] if len(kinds) == 1 and kinds[0] in _SIMPLE else None


def _add_option(parser: argparse.ArgumentParser, field: "Field[Any]", kind: type[Any]) -> None:
    option = f"--{field.name.replace('_', '-')}"
    if field.default is MISSING:
        parser.add_argument(option, type=kind, required=True)
    else:
        help_text = f"default: {field.default}"
        parser.add_argument(option, type=kind, default=field.default, help=help_text)
