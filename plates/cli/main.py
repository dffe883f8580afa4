"""The entry point of the `plates` command, which runs the module of the subcommand."""

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from keyword import iskeyword
from types import ModuleType

from plates.cli import Stopped, printable

COMMANDS = {
    "serve": "serve /v1/plates over HTTP, with its own Triton",
    "triton": "run a supervised Triton alone, for a gateway elsewhere",
    "health": "check the health of a running service",
    "read": "read photos and videos in this process, without a server",
    "watch": "follow cameras and videos: one event per passing vehicle",
    "bulk": "read an archive of photos into Parquet files",
    "demo": "start the service, read photos over HTTP, stop the service",
    "export": "export weights/ into the model repository",
    "eval": "evaluate the weights on labelled photos",
    "compare": "compare two evaluations plate by plate",
    "train": "train the detector or the recognizer",
    "import": "convert other projects' weights to this project's format",
    "calibrate": "fit the scores to the measured share of right texts",
    "bench": "measure speed, overload, recovery from faults, leaks, cameras",
    "config": "check the settings, or list them",
    "weights": "write the manifest of the weight files",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; `argv` excludes the program's name.

    Returns the exit status: 0 for success, 1 for a failure, 2 for broken data or a number out of
    range, 128 plus the number of a stop signal. Other invalid arguments raise SystemExit with 2.
    """
    # By default OpenMP's waiting threads spin, which is extremely slow as soon as anything else
    # computes on the same cores. torch reads the variable when it is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    # A crop's matrices are small: several threads take longer. NumPy reads the variable.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    words = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    try:
        arguments = _parse(words)
        status = int(arguments.run(arguments) or 0)
        sys.stdout.flush()
    except Stopped as stopped:
        return 128 + stopped.number
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # The reader of stdout has closed it, as `head` does.
        _discard_output()
        return 0
    except ModuleNotFoundError as error:  # An image has only its commands' packages.
        lacking = error.name or ""
        if lacking.partition(".")[0] in ("", "api", "plate_models", "plates"):
            raise
        remedy = "use the .venv of `make setup`, or pip install -r docker/requirements/dev.txt"
        return _fail(words[0], f"this installation lacks {lacking}: {remedy}", 1)
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        return _fail(words[0], printable(f"{place}{error.strerror or error}"), 1)
    except Exception as error:
        # This project's errors are for users, too. Importing them here would load what raises them.
        package = type(error).__module__.partition(".")[0]
        if package not in ("plate_models", "plates"):
            raise
        # Messages of plate_models contain file names, the supervisor's have lines of logs.
        message = printable(error) if package == "plate_models" else str(error)
        return _fail(words[0], message, getattr(error, "exit_status", 1))
    return status


def _prepare_streams() -> None:
    """Escape characters that stdout can't encode, as stderr does; replace closed streams."""
    # A file or socket with a closed stream's number would be lost in programs that commands start.
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, errors="backslashreplace"))  # noqa: SIM115, PTH123
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _fail(command: str, message: str, status: int) -> int:
    # Line by line: a message may contain lines of a log.
    lines = map(printable, message.split("\n"))
    print(f"plates {command}: " + "\n".join(lines), file=sys.stderr)
    _discard_output()
    return status


def _discard_output() -> None:
    """Redirect stdout if it can't be flushed: at exit Python would report the error again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def module_of(name: str) -> ModuleType:
    """Import a subcommand; "import" is a keyword, so its module is ``import_``."""
    return import_module(f"plates.cli.{name}{'_' * iskeyword(name)}")


def _parse(words: list[str]) -> argparse.Namespace:
    """Import only the subcommand that is wanted, and let it declare its arguments."""
    raw = argparse.RawDescriptionHelpFormatter
    purpose = "Read licence plates in photos, videos and camera streams."
    parser = argparse.ArgumentParser("plates", description=purpose, formatter_class=raw)
    about = _version() if words[:1] == ["--version"] else ""
    text = "show the version of the code and the hash of the weights"
    parser.add_argument("--version", action="version", version=about, help=text)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=purpose, formatter_class=raw)
        if name in words[:1]:
            module = module_of(name)
            subparser.description = module.__doc__
            module.configure(subparser)
            subparser.set_defaults(run=module.run)
    arguments, unknown = parser.parse_known_args(words)
    # Empty arguments come from unset shell variables; as a path they would be the current folder.
    unknown += [repr(w) for w in words if not w or (w.startswith("--") and w.endswith("="))]
    if unknown:
        subparsers.choices[arguments.command].error(f"unrecognized or empty: {' '.join(unknown)}")
    return arguments


def _version() -> str:
    """The package's version, and the hash that identifies the weights in answers."""
    from plate_models.release import SHA256SUMS, WEIGHTS_DIR, sha256_of

    manifest = WEIGHTS_DIR / SHA256SUMS
    digest = sha256_of(manifest) if manifest.is_file() else ""
    return f"plates {version('plates')}" + (f"\nweights sha256:{digest}" if digest else "")


if __name__ == "__main__":
    sys.exit(main())
