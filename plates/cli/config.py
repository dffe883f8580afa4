"""Check settings before anything is started, or describe them for other tools.

`schema` prints the settings in JSON Schema, by the names of their environment variables.
`check` reads files of variables, such as compose's .env and docker/kubernetes/base/settings.env,
and refuses names with our prefix that nobody reads and values that make no sense. A file beside
a kustomization.yaml is read as kustomize reads it, any other one as compose does. Variables of
others are left alone, and so are values that compose fills in (${...}).
"""

import argparse
import json
import sys
from pathlib import Path

from plates.cli import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("schema", help="print the settings in JSON Schema")
    check = actions.add_parser("check", help="refuse files with settings that make no sense")
    check.add_argument("files", nargs="+", type=Path, metavar="FILE")


def run(arguments: argparse.Namespace) -> int:
    """Print the schema, or what is wrong with the files.

    Returns:
        0 if all is well, 1 if something is wrong in a file.

    Raises:
        CommandError: A file can't be read.
    """
    if arguments.action == "schema":
        from plates.cli.settings_schema import settings_schema

        print(json.dumps(settings_schema(), indent=2, ensure_ascii=False))
        return 0
    return max([_check(file) for file in arguments.files])


def _check(file: Path) -> int:
    """Print what is wrong with one file; 1 if anything is."""
    from plates.cli.environment import EnvironmentFileError, check_file

    try:
        problems = check_file(file)
    except EnvironmentFileError as error:
        raise CommandError(str(error)) from error
    for problem in problems:
        print(f"{file}: {problem}", file=sys.stderr)
    if not problems:
        print(f"{file}: ok")
    return int(bool(problems))
