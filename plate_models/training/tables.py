"""Tables of data, in a TOML file beside the module that draws with them."""

import tomllib
from pathlib import Path
from typing import Any


def tables_of(module: str) -> dict[str, Any]:
    """Read the TOML file of a module's name; the module is given by its ``__file__``."""
    return tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
