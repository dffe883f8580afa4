"""Loads models again whose processes have died."""

import threading

from plates.serving.client import TritonHttp
from plates.serving.errors import RequestError

# All dead models of one moment together; a restart takes no longer.
RELOAD_S = 20.0


class Reload:
    """Loads models again, in a thread: each may take seconds, or for ever.

    Attributes:
        models: What is loaded.
        done: Whether all were loaded.
        error: Why one was not.
    """

    def __init__(self, triton: TritonHttp, models: list[str]) -> None:
        """Begin.

        Args:
            triton: Has the models.
            models: Those first that others ask.
        """
        self.models = models
        self.done = False
        self.error: RequestError | None = None
        self._triton = triton
        threading.Thread(target=self._run, name="reload", daemon=True).start()

    def _run(self) -> None:
        try:
            for model in self.models:
                self._triton.reload(model, RELOAD_S)
        except RequestError as error:
            self.error = error
        else:
            self.done = True
