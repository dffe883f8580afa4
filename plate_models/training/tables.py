"""Data tables in a TOML file beside their module; random draws from tables and ranges."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.random import Generator

Row = TypeVar("Row")
Range = tuple[float, float]


def tables_of(module: str) -> dict[str, Any]:
    """Read the TOML file beside a module, which is given by its ``__file__``."""
    return tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))


def pick(rows: Sequence[Row], rng: Generator) -> Row:
    """Draw one of a table's rows with equal odds."""
    return rows[rng.integers(len(rows))]


def log_uniform(span: Range, rng: Generator) -> float:
    """Draw from a range, uniformly in the logarithm."""
    return float(np.exp(rng.uniform(*np.log(span))))


def choose(rows: Sequence[Sequence[Any]], rng: Generator) -> tuple[Any, ...]:
    """Draw a table's row by the odds in its last column; returns the row without the odds."""
    odds = np.array([row[-1] for row in rows], np.float64)
    return tuple(rows[rng.choice(len(rows), p=odds / odds.sum())][:-1])
