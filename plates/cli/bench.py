"""Measure the service's speed, its recovery from overload and faults, leaks, archives and cameras.

A tool that needs a service starts one on free loopback ports, unless --url names a running one.
Each tool prints tables, and exits with status 1 if a floor (a required figure) is missed. Nothing
else should run on the machine at the same time.
"""

import argparse
from importlib import import_module
from pathlib import Path

from plates.benchmarks.report import Report
from plates.cli import stop_signals_raise

TOOLS = {
    "serve": "latency, throughput, stages, CPU time, memory; optionally a published pipeline's",
    "overload": "goodput, latency and refusals at up to four times the capacity",
    "faults": "kill -9 of each process under load: the time until the service is healthy again",
    "soak": "a long mixed load: does memory or the number of open files grow?",
    "bulk": "an archive, while its processes are killed: is every photo read exactly once?",
    "cameras": "how many cameras this machine can follow: frames dropped, delay, passes, memory",
    "passes": "vehicles in rendered films: are they found, and read better than the best frame?",
}


def configure(parser: argparse.ArgumentParser) -> None:
    lines = (f"  {name:<10} {purpose}" for name, purpose in TOOLS.items())
    parser.epilog = "\n".join(("tools:", *lines))
    parser.add_argument("tool", choices=TOOLS, metavar="TOOL")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see `plates bench TOOL --help`")


def run(arguments: argparse.Namespace) -> int:
    """Run the tool; returns 1 if a floor is missed."""
    options = parse_options(arguments.tool, arguments.options)
    if options.json:  # A bad path must fail before the tool runs for minutes.
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.open("a").close()
    with stop_signals_raise():
        report: Report = options.measure(options)
        return report.publish(options.json)


def parse_options(tool: str, words: list[str]) -> argparse.Namespace:
    """Import a tool and parse its options; the result's `measure` is its `run`."""
    module = import_module(f"plates.benchmarks.{tool}")
    raw = argparse.RawDescriptionHelpFormatter
    prog, about = f"plates bench {tool}", module.__doc__
    parser = argparse.ArgumentParser(prog, description=about, formatter_class=raw)
    module.configure(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures as JSON")
    parser.set_defaults(measure=module.run)
    return parser.parse_args(words)
