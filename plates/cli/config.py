"""Check settings before anything is started, or describe them.

`check` refuses names with our prefix that are no settings and values that make no sense: in the
current environment and in .env, where there is one, or in the files that are named. A file
beside a kustomization.yaml is read as kustomize reads it, any other one as compose does.
Variables of others are left alone, and so are values that compose fills in (${...}).
`schema` prints the settings in JSON Schema, `table` as a table in Markdown.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("schema", help="print the settings in JSON Schema")
    actions.add_parser("table", help="print the settings as a table in Markdown")
    check = actions.add_parser("check", help="refuse settings that make no sense")
    check.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="instead of the environment and .env"
    )


def run(arguments: argparse.Namespace) -> int:
    """Describe the settings, or print what is wrong with them; 1 if anything is."""
    if arguments.action == "schema":
        print(json.dumps(settings_schema(), indent=2, ensure_ascii=False))
        return 0
    if arguments.action == "table":
        print(settings_table())
        return 0
    from plates.cli.environment import check, check_file

    files = arguments.files or [env for env in [Path(".env")] if env.exists()]
    problems = {} if arguments.files else {"environment": check(os.environ)}
    problems |= {str(file): check_file(file) for file in files}
    for name, found in problems.items():
        for problem in found:
            print(f"{name}: {problem}", file=sys.stderr)
        if not found:
            print(f"{name}: ok")
    return int(any(problems.values()))


def settings_schema() -> dict[str, Any]:
    """The settings by the names of their variables, in JSON Schema (draft 2020-12)."""
    from api.settings import Settings

    fields = Settings.model_json_schema()["properties"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of the gateway and of the supervisor, as environment variables",
        "type": "object",
        "properties": {f"PLATES_{name}".upper(): _flat(field) for name, field in fields.items()},
        "patternProperties": {"^(?!PLATES_)": True},
        "additionalProperties": False,
    }


def settings_table() -> str:
    """The settings as a table in Markdown, as the documents have it."""
    rows = ["| Setting | Meaning | Default |", "|---|---|---|"]
    for name, field in settings_schema()["properties"].items():
        default = f"`{field['default']}`" if "default" in field else ""
        rows.append(f"| `{name}` | {field['description']} | {default} |")
    return "\n".join(rows)


def _flat(field: dict[str, Any]) -> dict[str, Any]:
    """A setting as one value: null is left out instead, and a list is a text with commas."""
    flat = {name: value for name, value in field.items() if name != "title"}
    flat["description"] = " ".join(field["description"].split())
    for kind in flat.pop("anyOf", []):
        flat |= kind if kind["type"] != "null" else {}
    flat |= flat.pop("items", {})
    if flat.get("default") in (None, []):
        flat.pop("default", None)
    elif flat.get("format") == "path":  # Not where this is installed.
        flat["default"] = str(Path(flat["default"]).relative_to(_ROOT))
    return flat
