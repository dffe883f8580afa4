"""What all uploads together may hold in memory, copies included."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from api.errors import Overloaded

Take = Callable[[int], None]

# Measured at its peak, per byte of a photo: what the gateway holds of it while Triton has it,
# beside the photo itself (tensor, protobuf message, its serialization, gRPC's buffer).
COPIES_AT_TRITON = 4
# Per byte of text that holds a photo in base64: itself and its copies while it is decoded.
COPIES_OF_TEXT = 4
# The same of JSON that is not all ASCII: Python's strings then take up to 4 bytes a character.
COPIES_OF_WIDE_TEXT = 10


class UploadMemory:
    """The bytes that all uploads together hold in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    @contextmanager
    def share(self) -> Iterator[Take]:
        """Account for the bytes of one upload, until the context ends.

        Yields:
            To be called with the number of bytes taken, or a negative one for bytes given back;
            raises `Overloaded` where they are too many.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if count > 0 and self.used + count > self._limit:
                raise Overloaded(
                    "Too many photos are coming in at once. Try again shortly.", reason="memory"
                )
            self.used += count
            taken += count

        try:
            yield take
        finally:
            self.used -= taken
