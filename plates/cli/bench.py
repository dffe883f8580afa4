"""Measure: how fast the pipeline is in this process, and how the service bears load.

  plates bench stages     where a photo's time goes, in process
  plates bench baseline   the pipeline beside the published one's shape, in process
  plates bench floor      each net against the time that its arithmetic needs
  plates bench scaling    does cost grow like a straight line, with plates and with pixels?
  plates bench creep      has a stage become slower since the last release?

  plates bench serve      latency, throughput, CPU time and memory, beside in process
  plates bench sizing     photos per second and memory, for one core and for more
  plates bench overload   offered rates from half of what it can do to four times that
  plates bench soak       a mixed load for a long time: does anything grow?
  plates bench faults     kill -9 of each process under load: how soon is it healthy again?

  plates bench bulk       an archive read under kill -9, and its pace beside plain processes

Those that need a service start one of their own on free loopback ports unless --url names
one. Each prints a table, draws a picture and ends with 1 where a floor is missed. Nothing
else should run on the machine meanwhile.
"""

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any

TOOLS = {
    "serve": "latency, throughput, CPU time and memory of the service, beside in process",
    "sizing": "photos per second and memory of the service, for one core and for more",
    "stages": "where a photo's time goes, in process",
    "baseline": "the pipeline beside the published one's shape, in process",
    "floor": "each net against the time that its arithmetic needs",
    "scaling": "whether cost grows like a straight line with plates and pixels",
    "creep": "whether a stage became slower since the last release",
    "overload": "goodput, latency and refusals at up to four times the capacity",
    "soak": "memory and files under a mixed load for a long time",
    "bulk": "an archive read under kills: exactly once, flat memory, pace",
    "faults": "what senders see while processes are killed, and for how long",
}


class _ToolParser(argparse.ArgumentParser):
    """Imports its tool, and lets it declare its options, only when that one is chosen."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        module = import_module(f"plates.benchmarks.{self.prog.split()[-1]}")
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
    from plates.cli.signals import stop_signals_raise

    with stop_signals_raise():
        return int(arguments.run_tool(arguments))
