"""The supervisor's status file: small, replaced as a whole, without addresses or keys.

The gateway adds its counts to /metrics; operators may read it as well.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pydantic import TypeAdapter

State = Literal["failed", "stopped", "starting", "healing", "ready"]  # the worst first


@dataclass(frozen=True)
class Status:
    """The state of the service."""

    state: State  # "healing" as long as anything is being restarted, "failed" for good
    # Of "gateway", "triton", or a model that was loaded again because its processes died.
    restarts: Mapping[str, int] = field(default_factory=dict)
    release: int | None = None  # the model version that is served; None where there is only one
    refused: Mapping[str, str] = field(default_factory=dict)  # version: why it is not served


_JSON = TypeAdapter(Status)


def write_status(path: Path, status: Status) -> None:
    """Replace the file atomically; raises `OSError` where it can't be written."""
    written = path.with_name(f"{path.name}.{os.getpid()}")
    written.write_bytes(_JSON.dump_json(status))
    written.replace(path)


def read_status(path: Path) -> Status | None:
    """Read the file; None where there is none, or where it is something else."""
    try:
        return _JSON.validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def merge(found: Sequence[Status]) -> Status:
    """The status of a whole whose parts have these; "ready" without parts."""
    states = {status.state for status in found}
    return Status(
        next((state for state in get_args(State) if state in states), "ready"),
        {part: count for status in found for part, count in status.restarts.items()},
        next((status.release for status in found if status.release is not None), None),
        {version: why for status in found for version, why in status.refused.items()},
    )
