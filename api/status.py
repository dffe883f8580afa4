"""What the supervisor tells everybody: one small file, replaced as a whole.

The gateway's worker adds its counts to /metrics; whoever operates the service may read
it as well. It holds no address and no key.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

State = Literal["starting", "ready", "healing", "failed"]
_WORST_FIRST: tuple[State, ...] = ("failed", "starting", "healing", "ready")


@dataclass(frozen=True)
class Status:
    """How the service is.

    Attributes:
        state: "healing" as long as anything is being restarted, "failed" for good.
        restarts: How often each part was restarted: "gateway", "triton", or a model, whose
            processes died and which was loaded again.
        release: The version of the models that is served; None where no releases are.
        refused: Version to the reason why it is not served.
    """

    state: State
    restarts: Mapping[str, int] = field(default_factory=dict)
    release: int | None = None
    refused: Mapping[str, str] = field(default_factory=dict)


def write_status(path: Path, status: Status) -> None:
    """Replace the file at once: nobody ever reads half of it.

    Args:
        path: In a folder that exists.
        status: What to tell.

    Raises:
        OSError: It can't be written there.
    """
    text = json.dumps(asdict(status))
    written = path.with_name(f"{path.name}.{os.getpid()}")
    written.write_text(text, encoding="utf-8")
    written.replace(path)


def read_status(path: Path) -> Status | None:
    """Read what :func:`write_status` wrote.

    Args:
        path: Where it was written.

    Returns:
        The status; None where there is no such file, or where it is something else.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        state, restarts = document["state"], document["restarts"]
        counts = {str(part): int(count) for part, count in restarts.items()}
        release, refused = document.get("release"), document.get("refused", {})
        reasons = {str(version): str(reason) for version, reason in refused.items()}
        release = None if release is None else int(release)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Status(state, counts, release, reasons) if state in get_args(State) else None


def worst_of(states: Iterable[State]) -> State:
    """How something is whose parts are so; "ready" if there are none."""
    found = set(states)
    return next((state for state in _WORST_FIRST if state in found), "ready")


def read_statuses(paths: Iterable[Path]) -> Status | None:
    """Read what several supervisors tell of parts of one service.

    Args:
        paths: As for :func:`read_status`.

    Returns:
        All of it together; None where none of them tells anything.
    """
    found = [status for path in paths if (status := read_status(path)) is not None]
    if not found:
        return None
    return Status(
        worst_of(status.state for status in found),
        {part: count for status in found for part, count in status.restarts.items()},
        next((status.release for status in found if status.release is not None), None),
        {version: why for status in found for version, why in status.refused.items()},
    )
