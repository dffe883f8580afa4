"""Check the health of a service: exit status 0 if it answers 200, else 1 and the reason.

For health checks of containers, whose images have no curl: plates health
https://127.0.0.1:8080/readyz --ca-file certificate.pem
"""

import argparse
import ssl
from collections.abc import Sequence
from pathlib import Path

from api.status import read_status
from plates.cli import CommandError
from plates.cli.options import add_number


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="http(s)://host:port/path that answers 200 if all is well")
    text = "the supervisor's PLATES_STATUS_FILE, which must say ready, too"
    parser.add_argument("--status", type=Path, metavar="FILE", help=text)
    text = "accept 429, too: an overloaded service is alive"
    parser.add_argument("--or-busy", action="store_true", help=text)
    add_number(parser, "--timeout", 5.0, "seconds to wait for the answer", least=0.1, most=3600)
    trust = parser.add_mutually_exclusive_group()
    trust.add_argument("--ca-file", type=Path, metavar="FILE", help="trusted certificates, PEM")
    text = "accept any certificate, for a service on this machine"
    trust.add_argument("--insecure", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> None:
    if arguments.status:
        status = read_status(arguments.status)
        if status is None:
            raise CommandError(f"{arguments.status}: there is no status of a supervisor")
        if status.state != "ready":
            raise CommandError(f"the supervisor says: {status.state}")
    try:
        trusted = ssl.create_default_context(cafile=arguments.ca_file)
    except OSError as error:  # includes ssl.SSLError
        raise CommandError(f"--ca-file {arguments.ca_file}: {error}") from error
    accepted = (200, 429) if arguments.or_busy else (200,)
    ask(arguments.url, False if arguments.insecure else trusted, arguments.timeout, accepted)


def ask(
    url: str, verify: ssl.SSLContext | bool, timeout_s: float, accepted: Sequence[int] = (200,)
) -> None:
    """GET a URL once; raises `CommandError` if the answer's status is not accepted."""
    import httpx

    try:
        answer = httpx.get(url, verify=verify, trust_env=False, timeout=timeout_s)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # the last of IDNA
        raise CommandError(f"{url}: {str(error) or type(error).__name__}") from error
    if answer.status_code not in accepted:
        raise CommandError(f"{url}: {answer.status_code} {answer.text[:300]}".rstrip())
