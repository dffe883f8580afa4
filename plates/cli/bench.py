"""Measure how fast the service is, and how it bears overload, faults and time.

Tools that need a service start one of their own on free loopback ports unless --url names
one. Each prints tables and ends with 1 where a floor is missed. Nothing else should run on the
machine meanwhile.
"""

import argparse
from importlib import import_module
from pathlib import Path

from plates.benchmarks.report import Report
from plates.cli import stop_signals_raise

TOOLS = {
    "serve": "latency, throughput, stages, CPU time, memory; beside the published shape on request",
    "overload": "goodput, latency and refusals at up to four times the capacity",
    "faults": "kill -9 of each process under load: how soon is it healthy again?",
    "soak": "a mixed load for a long time: does anything grow?",
    "bulk": "an archive read under kills: is every photo read exactly once?",
    "cameras": "how many cameras this machine carries: frames dropped, delay, passes, memory",
    "passes": "vehicles' passes in rendered films: found, and read better than any single frame?",
}


def configure(parser: argparse.ArgumentParser) -> None:
    lines = (f"  {name:<10} {purpose}" for name, purpose in TOOLS.items())
    parser.epilog = "\n".join(("tools:", *lines))
    parser.add_argument("tool", choices=TOOLS, metavar="TOOL")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see `plates bench TOOL --help`")


def run(arguments: argparse.Namespace) -> int:
    """Measure; 1 if a floor is missed."""
    options = parse_options(arguments.tool, arguments.options)
    if options.json:  # Before minutes are spent on measuring.
        options.json.parent.mkdir(parents=True, exist_ok=True)
    with stop_signals_raise():
        report: Report = options.measure(options)
        return report.publish(options.json)


def parse_options(tool: str, words: list[str]) -> argparse.Namespace:
    """Import a tool, and let it declare and read its options; `measure` is its `run`."""
    module = import_module(f"plates.benchmarks.{tool}")
    raw = argparse.RawDescriptionHelpFormatter
    prog, about = f"plates bench {tool}", module.__doc__
    parser = argparse.ArgumentParser(prog, description=about, formatter_class=raw)
    module.configure(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep all figures as JSON")
    parser.set_defaults(measure=module.run)
    return parser.parse_args(words)
