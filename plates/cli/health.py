"""Ask a service whether it is well: 0 if it answers 200, else 1 and the reason.

For health checks of containers, whose images have no curl: standard library only.

  plates health http://127.0.0.1:8080/readyz
  plates health http://127.0.0.1:8000/v2/health/ready --status /run/plates/triton.json
"""

import argparse
import http.client
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from plates.cli import CommandError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("url", help="http://host:port/path that answers 200 when all is well")
    parser.add_argument(
        "--status", type=Path, metavar="FILE", help="PLATES_STATUS_FILE of the supervisor over it"
    )
    parser.add_argument(
        "--or-busy", action="store_true", help="429 counts as well: whoever says so is alive"
    )
    parser.add_argument("--timeout", type=float, default=5.0, metavar="S", help="seconds (5)")


def run(arguments: argparse.Namespace) -> int:
    """Ask once.

    Returns:
        0: all is well.

    Raises:
        CommandError: It is not.
    """
    if arguments.status:
        _check_status(arguments.status)
    busy = [http.HTTPStatus.TOO_MANY_REQUESTS] if arguments.or_busy else []
    _check_url(arguments.url, arguments.timeout, [http.HTTPStatus.OK, *busy])
    return 0


def _check_status(file: Path) -> None:
    from api.status import read_status

    status = read_status(file)
    if status is None:
        raise CommandError(f"{file}: no supervisor tells there how it is")
    if status.state != "ready":
        raise CommandError(f"the supervisor says: {status.state}")


def _check_url(url: str, timeout_s: float, well: Sequence[int]) -> None:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise CommandError(f"{url!r}: expected http://host:port/path")
    connection = http.client.HTTPConnection(parts.netloc, timeout=timeout_s)
    try:
        connection.request("GET", parts.path or "/")
        answer = connection.getresponse()
        said = answer.read(300).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise CommandError(f"{url}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
    if answer.status not in well:
        raise CommandError(f"{url}: {answer.status} {said}".rstrip())
