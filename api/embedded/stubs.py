"""The processes in which Triton runs Python, and which of them have died.

When one dies, its model fails for ever while the server says that it is ready, and nothing
restarts it. It stays as a zombie, which tells no more what it was: that is remembered here.
"""

from dataclasses import dataclass
from pathlib import Path

from api.embedded import processes

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
        # Zombies whose models were loaded again: Triton never reaps them.
        self._mourned: set[int] = set()
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
            if process.pid in self._known or process.pid in self._mourned:
                continue
            if process.dead:
                self._known[process.pid] = Stub(process.pid, "", "")
            elif (stub := _stub_of(process)) is not None:
                self._known[process.pid] = stub

    def dead(self) -> list[Stub]:
        """List the stubs that have died since they were noted."""
        return [stub for pid, stub in self._known.items() if not processes.is_alive(pid)]

    def replaced(self, models: list[str], dead: list[Stub]) -> None:
        """Forget a model's former stubs, as it was loaded again, and note the new ones.

        Args:
            models: Those that were loaded again.
            dead: Whose death was the reason. Nobody will open their memory by its name any
                more, though Triton still maps it: the name is removed.
        """
        for stub in dead:
            if stub.segment:
                (processes.SHARED_MEMORY / stub.segment).unlink(missing_ok=True)
        self._mourned |= {stub.pid for stub in dead}
        former = [pid for pid, stub in self._known.items() if stub.model in models]
        for pid in former:
            del self._known[pid]
        self.look()


def _stub_of(process: processes.Process) -> Stub | None:
    command = process.command
    if len(command) <= _SEGMENT or Path(command[0]).name != _PROGRAM:
        return None
    # …/<model>/<version>/<file>
    folders = Path(command[_MODEL_FILE]).parts
    return Stub(process.pid, folders[-3] if len(folders) > 2 else "", command[_SEGMENT])
