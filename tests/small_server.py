"""A tiny HTTP server that answers as a test wants: slowly, with refusals, or not at all."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager

from plates.benchmarks.http1 import Target

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REFUSAL = b"HTTP/1.1 429 Too Many\r\nretry-after: 3\r\nContent-Length: 0\r\n\r\n"
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"

# Given the number of the request, counted from 0; None closes without an answer.
Reply = Callable[[int], Awaitable[bytes | None]]


class SmallServer:
    """Counts what comes.

    Attributes:
        target: Where it listens.
        requests: Heads and bodies, in order.
        connections: How many were opened.
    """

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                self.requests.append(head + body)
                answer = await self._reply(len(self.requests) - 1)
                if answer is None:
                    return
                writer.write(answer)
                await writer.drain()
                if b"close" in answer:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def small_server(reply: Reply):
    """Serve on a free loopback port."""
    small = SmallServer(reply)
    server = await asyncio.start_server(small.serve, "127.0.0.1", 0)
    small.target = Target(*server.sockets[0].getsockname()[:2])
    try:
        yield small
    finally:
        server.close()


def always(answer: bytes | None, after_s: float = 0.0) -> Reply:
    async def reply(_: int) -> bytes | None:
        await asyncio.sleep(after_s)
        return answer

    return reply
