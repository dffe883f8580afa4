"""Triton's own metrics, so that one address has all of them."""

import asyncio

import httpx

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
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            body = await _get(f"http://{address}/metrics")
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
        return None
    lines = [line for line in body.splitlines() if line.startswith(_PREFIXES)]
    return b"\n".join([*lines, b""])


async def _get(url: str) -> bytes:
    # There is no TLS, and to load certificates takes longer than the metrics.
    client = httpx.AsyncClient(verify=False, trust_env=False)  # noqa: S501
    async with client, client.stream("GET", url) as answer:
        answer.raise_for_status()
        body = b""
        async for chunk in answer.aiter_raw():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise httpx.DecodingError("Triton's metrics are too long")
        return body
