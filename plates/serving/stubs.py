"""The processes in which Triton runs Python, and which of them have died.

When one dies, its model fails for ever while the server says that it is ready, and nothing
restarts it. It stays as a zombie, which tells no more what it was: that is remembered here.
"""

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from plates.serving import processes

_PROGRAM = "triton_python_backend_stub"
# Its arguments: program, model file, shared-memory segment …
_MODEL_FILE, _SEGMENT = 1, 2


@dataclass(frozen=True)
class Stub:
    """One process that runs an instance of a model.

    Attributes:
        pid: Its process id.
        model: Which model it serves; "" if it died before anybody looked.
        segment: Its shared memory's name; "" likewise.
    """

    pid: int
    model: str
    segment: str


class StubWatch:
    """Remembers the stubs of one server, and tells which have died."""

    def __init__(self, server: int) -> None:
        """Look at the server's children for the first time.

        Args:
            server: Its process id.
        """
        self._server = server
        self._known: dict[int, Stub] = {}
        # Of models that were loaded again: zombies, which Triton never reaps, and some that
        # live on, because a request to the dead one still holds their model.
        self._former: dict[int, Stub] = {}
        self.look()

    @property
    def server_lives(self) -> bool:
        """Whether the server is there at all: its end is the end of all stubs."""
        return processes.is_alive(self._server)

    @property
    def models(self) -> set[str]:
        """The models that run in stubs."""
        return {stub.model for stub in self._known.values()}

    def look(self) -> None:
        """Take note of new stubs: to be called when models were loaded."""
        for process in processes.children(self._server):
            if process.pid in self._known or self._is_former(process):
                continue
            if process.dead:
                self._known[process.pid] = Stub(process.pid, "", "")
            elif (stub := _stub_of(process)) is not None:
                self._known[process.pid] = stub

    def dead(self) -> list[Stub]:
        """List the stubs that have died since they were noted, and not by Triton's will."""
        return [stub for pid, stub in self._known.items() if processes.is_zombie(pid)]

    def settle(self) -> None:
        """Forget the stubs that Triton has ended itself, and note new ones.

        To be called when models were loaded or unloaded in order: Triton reaps those that it
        ends, and those that died by themselves stay as zombies.
        """
        there = {process.pid for process in processes.children(self._server)}
        self._known = {pid: stub for pid, stub in self._known.items() if pid in there}
        self.look()

    def replaced(self, models: list[str]) -> None:
        """Forget the former stubs of models that were loaded again, and note the new ones.

        Nobody will open their memory by its name any more, though Triton still maps it, and
        may never let go of it: the name is removed.
        """
        former = [stub for stub in self._known.values() if stub.model in models]
        for stub in former:
            if stub.segment:
                (processes.SHARED_MEMORY / stub.segment).unlink(missing_ok=True)
            self._former[stub.pid] = stub
            del self._known[stub.pid]
        self.look()

    def end_former(self) -> None:
        """End the stubs of models that were loaded again: nothing is asked of them any more."""
        for process in processes.children(self._server):
            if not process.dead and self._is_former(process):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGKILL)

    def _is_former(self, process: processes.Process) -> bool:
        former = self._former.get(process.pid)
        # An id is given to somebody else once Triton has reaped whoever had it.
        return former is not None and (process.dead or _stub_of(process) == former)


def _stub_of(process: processes.Process) -> Stub | None:
    command = process.command
    if len(command) <= _SEGMENT or Path(command[0]).name != _PROGRAM:
        return None
    # …/<model>/<version>/<file>
    folders = Path(command[_MODEL_FILE]).parts
    return Stub(process.pid, folders[-3] if len(folders) > 2 else "", command[_SEGMENT])
