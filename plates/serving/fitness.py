"""Everything that the start of a Triton needs, asked at once; see `plates.serving.preflight`."""

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from plates.serving import preflight
from plates.serving.installation import Installation, Wheel


@dataclass(frozen=True)
class Wanted:
    """The server that shall be started.

    Attributes:
        repository: Triton's model repository.
        profile: "cpu" or "gpu".
        host: The address that it shall listen on.
        ports: The variable that sets each port to the port; 0 stands for any free one.
    """

    repository: Path
    profile: str
    host: str
    ports: Mapping[str, int]


def problems_with(
    installation: Installation | None, wanted: Wanted, environment: Mapping[str, str]
) -> list[str]:
    """Ask everything that applies to an installation.

    Args:
        installation: From :func:`plates.serving.installation.find_installation`.
        wanted: What shall be started.
        environment: The one the server will run in.

    Returns:
        What is in the way, each with what to do; empty if nothing is.
    """
    paths = {
        "this Python": Path(sys.executable),
        "the model repository": wanted.repository,
        "the folder for temporary files (TMPDIR)": Path(tempfile.gettempdir()),
    }
    problems = [problem for problem in _installation_problems(installation) if problem]
    problems += preflight.check_spaces(paths)
    problems += preflight.check_ports(wanted.ports, wanted.host)
    problems += preflight.check_artifacts(wanted.repository, wanted.profile)
    problems += preflight.check_gpu(wanted.repository, wanted.profile)
    if not problems and installation:
        stub = preflight.check_stub(installation.stub, environment)
        problems += [stub] if stub else []
    return problems


def _installation_problems(installation: Installation | None) -> Iterator[str | None]:
    yield preflight.check_python()
    yield preflight.check_installation(installation)
    if isinstance(installation, Wheel):
        # An image brings its own system, and a Triton that knows numpy 2.
        yield preflight.check_platform()
        yield preflight.check_glibc()
        yield preflight.check_numpy()
        yield preflight.check_libpython(preflight.find_libpython())
        yield preflight.check_exec(Path(tempfile.gettempdir()))
    elif installation is None:
        yield preflight.check_platform()
    elif os.access(installation.stub, os.R_OK):
        yield preflight.check_stub_python(installation.stub)
