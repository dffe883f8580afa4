"""Measure how fast the service is, and how it bears overload, faults and time.

Tools that need a service start one of their own on free loopback ports unless --url names
one. Each prints tables and ends with 1 where a floor is missed. Nothing else should run on the
machine meanwhile.
"""

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from plates.benchmarks.report import Report
from plates.cli import stop_signals_raise

TOOLS = {
    "serve": "latency, throughput, CPU time and memory; beside the published shape on request",
    "overload": "goodput, latency and refusals at up to four times the capacity",
    "faults": "kill -9 of each process under load: how soon is it healthy again?",
    "soak": "a mixed load for a long time: does anything grow?",
    "stages": "where a photo's time goes; --check: is a stage slower than at the last release?",
    "bulk": "an archive read under kills: is every photo read exactly once?",
    "cameras": "how many cameras this machine carries: frames dropped, delay, passes, memory",
    "passes": "vehicles' passes in rendered films: found, and read better than any single frame?",
}


class _ToolParser(argparse.ArgumentParser):
    """Imports its tool, and has it declare its options, only when that one is chosen."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        name = self.prog.split()[-1]
        module = import_module(f"plates.benchmarks.{name}")
        self.description = module.__doc__
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        module.configure(self)
        self.add_argument("--json", type=Path, metavar="FILE", help="keep all figures as JSON")
        self.set_defaults(measure=module.run)
        return super().parse_known_args(args, namespace)


def configure(parser: argparse.ArgumentParser) -> None:
    options: dict[str, Any] = {"required": True, "metavar": "TOOL", "parser_class": _ToolParser}
    tools = parser.add_subparsers(dest="tool", **options)
    for name, purpose in TOOLS.items():
        tools.add_parser(name, help=purpose)


def run(arguments: argparse.Namespace) -> int:
    """Measure; 1 if a floor is missed."""
    if arguments.json:  # Before minutes are spent on measuring.
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
    with stop_signals_raise():
        report: Report = arguments.measure(arguments)
        return report.publish(arguments.json)
