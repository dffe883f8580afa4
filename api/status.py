"""The supervisor's status file: small, replaced atomically, without addresses or keys.

The gateway adds its contents to /metrics; operators may read it as well.
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

    state: State  # "healing" during a restart; "failed" if the supervisor has given up
    # Counts by part: "gateway", "triton", or a model, loaded again because its process died.
    restarts: Mapping[str, int] = field(default_factory=dict)
    release: int | None = None  # the served model version; None if there is only one
    refused: Mapping[str, str] = field(default_factory=dict)  # version: why it is not served


_JSON = TypeAdapter(Status)


def write_status(path: Path, status: Status) -> None:
    """Replace the file atomically; raises `OSError` if this fails."""
    written = path.with_name(f"{path.name}.{os.getpid()}")
    written.write_bytes(_JSON.dump_json(status))
    written.replace(path)


def read_status(path: Path) -> Status | None:
    """Read the file; None if it is missing or invalid."""
    try:
        return _JSON.validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def merge(found: Sequence[Status]) -> Status:
    """Merge the statuses of a service's parts; without parts the state is "ready"."""
    return Status(
        min((status.state for status in found), key=get_args(State).index, default="ready"),
        {part: count for status in found for part, count in status.restarts.items()},
        next((status.release for status in found if status.release is not None), None),
        {version: why for status in found for version, why in status.refused.items()},
    )
