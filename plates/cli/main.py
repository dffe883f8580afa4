"""The `plates` command."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from types import ModuleType

from plates.cli import CommandError
from plates.cli.signals import Stopped

COMMANDS = {
    "serve": "serve /v1/plates over HTTP, with a Triton of its own",
    "triton": "run Triton alone, watched and healed: the other half of serve",
    "health": "ask a running service whether it is well",
    "read": "read photos and videos here, without a server",
    "bulk": "read an archive of photos into Parquet files",
    "demo": "start everything, read photos over HTTP, stop everything",
    "export": "export weights/ into the model repository",
    "eval": "score the weights on labelled photos",
    "compare": "compare two evaluations, plate by plate",
    "train": "train the detector or the recognizer",
    "import": "turn weights from elsewhere into ours",
    "calibrate": "fit the scores to what comes true",
    "bench": "measure the service under overload, faults and time",
    "config": "check settings in files, or describe them",
    "weights": "write the manifest of the weight files",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        argv: Arguments without the program's name; None takes the process's.

    Returns:
        The exit status: 0 for success, 1 for a failure, 2 for broken data, 128 plus its
        number after a signal (`serve` ends with 0 after one: that is how it is stopped).

    Raises:
        SystemExit: With status 2 on arguments that make no sense.
    """
    # OpenMP's threads would spin while they wait, which is slow out of all proportion as
    # soon as anything else computes on the same cores. Read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    arguments = _parse(list(sys.argv[1:] if argv is None else argv))
    try:
        return int(arguments.run(arguments))
    except CommandError as error:
        print(f"plates {arguments.command}: {error}", file=sys.stderr)
        return error.status
    except Stopped as stopped:
        return 128 + stopped.number
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has had enough, as `head` does. Python would complain
        # once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def module_of(name: str) -> ModuleType:
    """Import a subcommand; "import" is a keyword, so its module is ``import_``."""
    return import_module(f"plates.cli.{name}{'_' * iskeyword(name)}")


def _parse(words: list[str]) -> argparse.Namespace:
    """Import only the subcommand that is wanted, and let it declare its arguments."""
    parser = argparse.ArgumentParser(prog="plates", description="Reads licence plates.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=purpose)
        if name in words[:1]:
            module = module_of(name)
            subparser.description = module.__doc__
            subparser.formatter_class = argparse.RawDescriptionHelpFormatter
            module.configure(subparser)
            subparser.set_defaults(run=module.run)
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
