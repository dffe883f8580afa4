"""The settings described in JSON Schema, for whoever checks files before anything is started."""

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from api.settings import Settings
from plates.cli.environment import PREFIX

_ATTRIBUTES = re.compile(r"^Attributes:\n(.*)", re.DOTALL | re.MULTILINE)
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n        .*)*)", re.MULTILINE)
_ROOT = Path(__file__).resolve().parents[2]


def settings_schema() -> dict[str, Any]:
    """Describe the settings by the names of their variables.

    Returns:
        A JSON Schema (draft 2020-12) of objects whose members are variables. Of those with our
        prefix only known ones are allowed; others may be anything.
    """
    fields = Settings.model_json_schema()["properties"]
    told = descriptions()
    properties = {
        f"{PREFIX}{name}".upper(): {"description": told[name]} | _property(field)
        for name, field in fields.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of the gateway and of the supervisor, as environment variables",
        "type": "object",
        "properties": properties,
        "propertyNames": {
            "anyOf": [{"enum": sorted(properties)}, {"not": {"pattern": f"^{PREFIX}"}}]
        },
    }


def descriptions() -> dict[str, str]:
    """What the docstring of `Settings` says of each setting, on one line."""
    found = _ATTRIBUTES.search(inspect.getdoc(Settings) or "")
    return {
        name: re.sub(r"\s+", " ", text).strip()
        for name, text in _ATTRIBUTE.findall(found[1] if found else "")
    }


def _property(field: Mapping[str, Any]) -> dict[str, Any]:
    """Of one setting: "may be null" becomes "may be left out", a list a text with commas."""
    described = dict(field)
    kinds = [kind for kind in described.pop("anyOf", ()) if kind["type"] != "null"]
    described = described | (kinds[0] if kinds else {})
    del described["title"]
    if described["type"] == "array":
        secret = {
            key: described["items"][key] for key in ("writeOnly",) if key in described["items"]
        }
        return {"type": "string"} | secret
    if "default" in described and described["default"] is None:
        del described["default"]
    if described.get("format") == "path":
        # Where this is installed is nobody's business.
        described |= {
            key: str(Path(value).relative_to(_ROOT))
            for key, value in described.items()
            if key == "default"
        }
    return described
