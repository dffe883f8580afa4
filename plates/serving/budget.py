"""How often a part may be restarted before it counts as beyond healing."""

import time
from collections.abc import Callable

from plates.serving.errors import GaveUp

MAX_RESTARTS = 5
WINDOW_S = 60.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 8.0


class RestartBudget:
    """Bounds the restarts of one part, in a time and in a row, and spaces them out."""

    def __init__(self, part: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing spent.

        Args:
            part: Its name, for the message.
            clock: Tells the time in seconds.
        """
        self._part = part
        self._clock = clock
        self._times: list[float] = []
        self._in_a_row = 0

    def spend(self, reason: str) -> float:
        """Allow one more restart.

        Args:
            reason: What is wrong with the part.

        Returns:
            Seconds to wait before it: none for the first, then ever more.

        Raises:
            GaveUp: There were too many within a minute, or in a row without the part
                being well in between.
        """
        now = self._clock()
        self._times = [moment for moment in self._times if now - moment < WINDOW_S]
        if max(len(self._times), self._in_a_row) >= MAX_RESTARTS:
            raise GaveUp(f"{self._part} can't be healed: after {MAX_RESTARTS} restarts {reason}")
        earlier = len(self._times)
        self._times.append(now)
        self._in_a_row += 1
        if not earlier:
            return 0.0
        return float(min(_FIRST_PAUSE_S * 2 ** (earlier - 1), _LONGEST_PAUSE_S))

    def well(self) -> None:
        """Take note that the part works again."""
        self._in_a_row = 0
