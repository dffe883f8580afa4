"""The gateway's process, as the supervisor sees it: a child that serves on our socket.

The listening socket stays open here: while the process is restarted, clients wait in its backlog
instead of being refused.
"""

import socket
from collections.abc import Callable, Mapping

from plates.serving.child import Child, python

COMMAND = python("plates.serving.gateway_process")


class GatewayWorker(Child):
    """The supervisor's part that is the gateway."""

    def __init__(
        self, environment: Callable[[], Mapping[str, str]], listener: socket.socket
    ) -> None:
        self._listener = listener
        listen = listener.fileno()
        super().__init__("gateway", [*COMMAND, "--listen", str(listen)], environment, [listen])

    def stop(self) -> None:
        """Refuse new connections, let photos under way be finished, end the process."""
        self._listener.close()
        super().stop()
