"""Check the service's settings before it starts, or list them.

`check` reports variables with the prefix PLATES_ that are not settings, and values that are
invalid. It checks the environment and the file .env if there is one, or only the given files, which
are parsed as docker compose parses them.
"""

import argparse
import difflib
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from pathlib import Path

from dotenv.parser import parse_stream
from pydantic import ValidationError

from api.settings import UNREADABLE_FILE, Settings

PREFIX = "PLATES_"
# Variables of other commands and of the tests.
OF_OTHERS = frozenset(PREFIX + name for name in ("DATA", "TRITON_HTTP_URL", "URL"))
SETTINGS = frozenset(f"{PREFIX}{name}".upper() for name in Settings.model_fields)
_ROOT = Path(__file__).resolve().parents[2]

log = logging.getLogger("plates.settings")


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("table", help="print the settings as a table in Markdown")
    check = actions.add_parser("check", help="report unknown and invalid settings")
    text = "check these instead of the environment and .env"
    check.add_argument("files", nargs="*", type=Path, metavar="FILE", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Print the table of settings, or the problems; returns 1 if there are problems."""
    if arguments.action != "check":
        print(settings_table())
        return 0
    files = arguments.files or [env for env in [Path(".env")] if env.exists()]
    problems = {} if arguments.files else {"environment": check(os.environ)}
    problems |= {str(file): check_file(file) for file in files}
    for name, found in problems.items():
        for problem in found:
            print(f"{name}: {problem}", file=sys.stderr)
        if not found:
            print(f"{name}: ok")
    return int(any(problems.values()))


def warn_of_unknown_settings() -> None:
    """Log a warning for each variable with the prefix that is not a setting."""
    for problem in _unknown(os.environ):
        log.warning("%s. It is ignored.", problem)


def explain(error: ValidationError, elsewhere: bool = False) -> Iterator[str]:
    """Describe each invalid setting by the name of its variable, never by its value.

    Settings for another machine or a container (`elsewhere`) may name files that don't exist here.
    """
    # A setting's default may depend on another setting: report only the invalid one.
    skipped = {"default_factory_not_called", UNREADABLE_FILE if elsewhere else ""}
    for wrong in error.errors():
        if wrong["type"] not in skipped:
            reason = wrong["msg"].removeprefix("Value error, ")
            yield f"{PREFIX}{wrong['loc'][0]}".upper() + f": {reason}"


def check(environment: Mapping[str, str], elsewhere: bool = False) -> list[str]:
    """List the problems of an environment; for `elsewhere` see `explain`."""
    problems = list(_unknown(environment))
    given = {
        name.upper().removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.upper() in SETTINGS and value
    }
    try:
        # No variable has this prefix: this process's own environment is ignored.
        Settings(_env_prefix="\0", **given)  # type: ignore[arg-type, call-arg]
    except ValidationError as error:
        problems += explain(error, elsewhere)
    return problems


def check_file(path: Path) -> list[str]:
    """List the problems of a file of variables; raises OSError if it can't be read."""
    # The lines of a binary file are reported as wrong.
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    problems, variables = [], dict[str, str]()
    for binding in parse_stream(StringIO(text)):
        if binding.error or (binding.key and binding.value is None):
            problems.append(f"line {binding.original.line}: expected NAME=value")
        elif binding.key and "${" not in (value := binding.value or ""):  # compose substitutes
            variables[binding.key] = value
    return problems + check(variables, elsewhere=True)


def _unknown(names: Iterable[str]) -> Iterator[str]:
    """Describe variables with the prefix that are not settings, with the most similar setting."""
    for name in sorted(names):
        if name.startswith(PREFIX) and name.upper() not in SETTINGS | OF_OTHERS:
            like = difflib.get_close_matches(name.upper(), sorted(SETTINGS), n=1)
            yield f"{name}: there is no such setting" + (f" (is {like[0]} meant?)" if like else "")


def settings_table() -> str:
    """The settings as the table of docs/operating.md."""
    rows = ["| Setting | Meaning | Default |", "|---|---|---|"]
    for name, field in Settings.model_json_schema()["properties"].items():
        default, meaning = field.get("default"), " ".join(field["description"].split())
        if default and field.get("format") == "path":  # Independent of this installation's path.
            default = Path(default).relative_to(_ROOT)
        cell = "" if default in (None, []) else f"`{default}`"
        rows.append(f"| `{PREFIX}{name.upper()}` | {meaning} | {cell} |")
    return "\n".join(rows)
