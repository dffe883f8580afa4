"""Tables of data, in a TOML file beside the module that draws with them; draws from ranges, too."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.random import Generator

Row = TypeVar("Row")
Range = tuple[float, float]


def tables_of(module: str) -> dict[str, Any]:
    """Read the TOML file of a module's name; the module is given by its ``__file__``."""
    return tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))


def pick(rows: Sequence[Row], rng: Generator) -> Row:
    """Draw one of a table's rows, all of the same odds."""
    return rows[rng.integers(len(rows))]


def log_uniform(span: Range, rng: Generator) -> float:
    """Draw from a range, where twice as much is as far everywhere."""
    return float(np.exp(rng.uniform(*np.log(span))))


def choose(rows: Sequence[Sequence[Any]], rng: Generator) -> tuple[Any, ...]:
    """Draw one of a table's rows by their odds, the last column; returns it without them."""
    odds = np.array([row[-1] for row in rows], np.float64)
    return tuple(rows[rng.choice(len(rows), p=odds / odds.sum())][:-1])
