"""Triton's own metrics, so that one address tells everything."""

import asyncio
import contextlib

_TIMEOUT_S = 2.0
_MAX_BYTES = 4 * 1024 * 1024
# All families of Triton's begin like this, and none of ours.
_PREFIXES = (b"nv_", b"# HELP nv_", b"# TYPE nv_")


async def fetch_triton_metrics(address: str) -> bytes | None:
    """Ask Triton for its metrics.

    Args:
        address: host:port, as in `PLATES_TRITON_METRICS_URL`.

    Returns:
        Prometheus's text format, whole lines, Triton's families only; None if they did
        not come, or not soon enough.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            answer = await _get(host.strip("[]"), int(port))
    except (OSError, ValueError):  # TimeoutError is an OSError.
        return None
    head, found, body = answer.partition(b"\r\n\r\n")
    if not found or head.split(b" ", 2)[1:2] != [b"200"]:
        return None
    lines = [line for line in body.splitlines() if line.startswith(_PREFIXES)]
    return b"\n".join([*lines, b""])


async def _get(host: str, port: int) -> bytes:
    """One answer, read to the connection's end; `ValueError` if it is too long."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        # HTTP/1.0: an answer in one piece, without chunks.
        writer.write(f"GET /metrics HTTP/1.0\r\nHost: {host}:{port}\r\n\r\n".encode())
        answer = b""
        while chunk := await reader.read(65536):
            answer += chunk
            if len(answer) > _MAX_BYTES:
                raise ValueError("Triton's metrics are too long")
        return answer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
