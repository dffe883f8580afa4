"""The report of a benchmark: tables, floors that hold or are missed, and JSON."""

import json
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import psutil

from plate_models.cores import usable_cores

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Verdict:
    """Whether a floor holds: what was measured, its value, and the required value."""

    what: str
    came: str
    floor: str
    holds: bool

    def __str__(self) -> str:
        verdict = "holds " if self.holds else "MISSED"
        return f"{verdict}  {self.what}: {self.came} (floor: {self.floor})"


def at_most(what: str, value: float, limit: float, unit: str = "") -> Verdict:
    return Verdict(what, f"{round(value, 2):g}{unit}", f"<= {limit:g}{unit}", bool(value <= limit))


def none_of(what: str, found: Iterable[str]) -> Verdict:
    """Judge a list that must be empty."""
    came = ", ".join(found) or "none"
    return Verdict(what, came, "none", came == "none")


@dataclass(frozen=True)
class Report:
    """The outcome of a benchmark."""

    tables: dict[str, Rows]  # by name; those without rows are not printed
    verdicts: list[Verdict]  # one for each floor
    figures: dict[str, Any] = field(default_factory=dict)  # added to --json

    def publish(self, file: Path | None) -> int:
        """Print the report, and write it to a JSON file; returns 0 if every floor holds, else 1."""
        import pandas

        print(describe_machine())
        for name, rows in self.tables.items():
            if rows:
                table = pandas.DataFrame(rows)
                text = table.to_string(index=False, na_rep="-", float_format="{:.4g}".format)
                print(f"\n{name}\n{text}")
        print("", *self.verdicts, sep="\n", flush=True)
        if file:
            verdicts = [vars(each) for each in self.verdicts]
            document = {"machine": describe_machine(), "verdicts": verdicts}
            document |= self.tables | self.figures
            text = json.dumps(document, indent=1, ensure_ascii=False, default=float)
            file.write_text(text + "\n", encoding="utf-8")
        return 0 if all(verdict.holds for verdict in self.verdicts) else 1


def describe_machine() -> str:
    """Name processor, cores, memory, system and date in one line, on which all figures depend."""
    named = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    processor = named[1] if named else platform.machine()
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{processor}, {usable_cores()} cores, {memory}, {system}, {date.today().isoformat()}"
