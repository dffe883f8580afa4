"""Measure the service: how it bears overload, faults and time.

  plates bench overload   offered rates from half of what it can do to four times that
  plates bench soak       a mixed load for a long time: does anything grow?
  plates bench faults     kill -9 of each process under load: how soon is it healthy again?

Each starts a service of its own on free loopback ports unless --url names one, prints a
table, draws a picture and ends with 1 where a floor is missed. Nothing else should run on
the machine meanwhile.
"""

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any

TOOLS = {
    "overload": "goodput, latency and refusals at up to four times the capacity",
    "soak": "memory and files under a mixed load for a long time",
    "faults": "what senders see while processes are killed, and for how long",
}


class _ToolParser(argparse.ArgumentParser):
    """Imports its tool, and lets it declare its options, only when that one is chosen."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        module = import_module(f"api.bench.{self.prog.split()[-1]}")
        self.description = module.__doc__
        self.formatter_class = argparse.RawDescriptionHelpFormatter
        module.configure(self)
        self.set_defaults(run_tool=module.run)
        return super().parse_known_args(args, namespace)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the tools."""
    tools = parser.add_subparsers(
        dest="tool", required=True, metavar="TOOL", parser_class=_ToolParser
    )
    for name, purpose in TOOLS.items():
        tools.add_parser(name, help=purpose)


def run(arguments: argparse.Namespace) -> int:
    """Measure.

    Returns:
        0 if every floor holds, else 1.

    Raises:
        CommandError: The service or a photo is not there.
    """
    from api.commands.signals import stop_signals_raise

    with stop_signals_raise():
        return int(arguments.run_tool(arguments))
