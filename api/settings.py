"""What an operator can set, each as an environment variable with the prefix PLATES_."""

import re
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from plate_models.cores import photos_at_once, usable_cores
from plate_models.spec import LIMITS, Limits

Port = Annotated[int, Field(ge=0, le=65535)]

_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+")
_TRITON_ADDRESS = re.compile(r"(?:[\w.\-]+|\[[0-9A-Fa-f:.]+\]):(\d+)")
_TOKEN = re.compile(r"[!-+\--~]+")
_ROOT = Path(__file__).resolve().parent.parent


class Settings(BaseSettings):
    """Settings of the gateway and of the embedded Triton.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        triton_url: gRPC address of a Triton elsewhere: `host:8001`, `grpc://host:8001`,
            or `grpcs://host:8001` with TLS. Where the name has several addresses, photos go to
            each in turn; `ipv4:10.0.0.1:8001,10.0.0.2:8001` lists them. None: an embedded one
            is started.
        triton_ca_file: Certificates to trust for TLS, in PEM; None trusts the usual ones.
        triton_token: Sent with every request to Triton as `Authorization: Bearer …`.
        request_timeout_s: Seconds from a request's head to its answer, at most. Senders may
            ask for less with the header X-Request-Timeout.
        triton_host: Where the embedded Triton listens; loopback, unless it is in a container.
        triton_http_port: HTTP port of the embedded Triton; 0 takes a free one.
        triton_grpc_port: gRPC port of the embedded Triton; 0 takes a free one.
        triton_metrics_port: The port of its own metrics; 0 takes a free one.
        model_repository: What the embedded Triton serves.
        profile: Where it runs the nets: `cpu` or `gpu`. There is no falling back from one to
            the other.
        max_bytes: Largest photo file. The models refuse more than the default.
        max_pixels: Largest photo. The models refuse more than the default.
        threads: With which each net computes; by default as many as there are usable cores.
        concurrency: Photos at Triton at once, by default one more than threads; further ones
            wait.
        max_waiting: Photos that wait at most; further ones are answered with 429.
        upload_memory_bytes: What all photos that are coming in or waiting may hold
            together; further ones are answered with 429.
        upload_timeout_s: Seconds that a photo may take to come in.
        batch_max_files: Photos in one request to /v1/plates/batch.
        ready_max_age_s: How long ago a photo must have been read for /readyz.
        ready_timeout_s: Seconds after which /readyz gives up the photo it tries.
        tokens: Whoever sends photos must send one of these; none: everybody may.
        tokens_file: Further tokens, one per line; lines with # in front are comments.
        rate_limit: Photos per second for each token, or for each client's address where
            there are no tokens; None: as many as are read.
        rate_burst: Photos at once before that rate holds.
        cors_origins: Web sites whose pages may use the service, such as
            `https://gate.example`; none: only its own.
        header_timeout_s: Seconds that a request's head may take to come in.
        max_connections: Connections at once; more are answered with 429.
        log_format: `json`, one object per line, or `text`; None: text on a terminal.
        triton_metrics_url: host:port of Triton's own metrics, which then are part of ours.
        status_file: Where the supervisor tells what it restarted.
        triton_status_file: Where another supervisor tells it of a Triton elsewhere; None: the
            same file.
    """

    # Tokens are among the inputs, and must not stand in an error's message.
    model_config = SettingsConfigDict(
        env_prefix="PLATES_",
        env_ignore_empty=True,
        frozen=True,
        protected_namespaces=(),
        hide_input_in_errors=True,
        # gt=0 would let infinity through.
        allow_inf_nan=False,
    )

    host: str = "127.0.0.1"
    port: Port = 8080
    triton_url: str | None = None
    triton_ca_file: Path | None = None
    triton_token: SecretStr | None = None
    request_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    triton_host: IPv4Address = IPv4Address("127.0.0.1")
    triton_http_port: Port = 0
    triton_grpc_port: Port = 0
    triton_metrics_port: Port = 0
    model_repository: Path = _ROOT / "model_repository"
    profile: Literal["cpu", "gpu"] = "cpu"
    max_bytes: Annotated[int, Field(gt=0, le=LIMITS.max_bytes)] = LIMITS.max_bytes
    max_pixels: Annotated[int, Field(gt=0, le=LIMITS.max_pixels)] = LIMITS.max_pixels
    threads: Annotated[int, Field(gt=0)] = Field(default_factory=usable_cores)
    concurrency: Annotated[int, Field(gt=0)] = Field(
        default_factory=lambda known: photos_at_once(known.get("threads", 1))
    )
    max_waiting: Annotated[int, Field(ge=0)] = 32
    upload_memory_bytes: Annotated[int, Field(gt=0)] = 256 * 2**20
    upload_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    batch_max_files: Annotated[int, Field(gt=0)] = 16
    ready_max_age_s: Annotated[float, Field(gt=0)] = 2.0
    ready_timeout_s: Annotated[float, Field(gt=0)] = 3.0
    tokens: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    tokens_file: Path | None = None
    rate_limit: Annotated[float, Field(gt=0)] | None = None
    rate_burst: Annotated[int, Field(gt=0)] = 10
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    header_timeout_s: Annotated[float, Field(gt=0)] = 10.0
    max_connections: Annotated[int, Field(gt=0)] = 512
    log_format: Literal["json", "text"] | None = None
    triton_metrics_url: Annotated[str, Field(pattern=r"^[^/\s]+:\d+$")] | None = None
    status_file: Path | None = None
    triton_status_file: Path | None = None

    @field_validator("tokens", "cors_origins", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin!r} is no origin such as https://gate.example:8443")
        return value

    @field_validator("tokens")
    @classmethod
    def _check_tokens(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if not all(_TOKEN.fullmatch(secret.get_secret_value()) for secret in value):
            raise ValueError("a token is visible ASCII without spaces and commas")
        return value

    @field_validator("tokens_file")
    @classmethod
    def _check_tokens_file(cls, value: Path | None) -> Path | None:
        if value is not None:
            cls._check_tokens(_tokens_in(value))
        return value

    @field_validator("triton_url")
    @classmethod
    def _check_triton_url(cls, value: str | None) -> str | None:
        if not value:
            return None
        scheme, found, address = value.rpartition("://")
        if found and scheme not in ("grpc", "grpcs"):
            raise ValueError(
                f"{scheme}:// is not Triton's gRPC address; give host:port, grpc://host:port, "
                "or grpcs://host:port with TLS (the port is usually 8001)"
            )
        if ":" not in address or not address.rpartition(":")[2].isdigit():
            raise ValueError(f"{value!r} has no port; Triton's gRPC port is usually 8001")
        for one in re.sub(r"^ipv[46]:", "", address).split(","):
            found_one = _TRITON_ADDRESS.fullmatch(one)
            if not found_one or not 0 < int(found_one[1]) < 65536:
                raise ValueError(f"{one!r} is no address such as triton.example:8001")
        if "," in address and not address.startswith(("ipv4:", "ipv6:")):
            raise ValueError(
                f"{value!r} lists hosts; give one name that has all their addresses, or list "
                "the addresses: ipv4:10.0.0.1:8001,10.0.0.2:8001"
            )
        return value

    def accepted_tokens(self) -> tuple[SecretStr, ...]:
        """The tokens of both settings; none means that everybody may send photos.

        Raises:
            ValueError: The file can't be read any more, or holds no token.
        """
        return self.tokens + (_tokens_in(self.tokens_file) if self.tokens_file else ())

    @property
    def triton_address(self) -> str:
        """host:port of Triton's gRPC endpoint.

        Raises:
            ValueError: No `triton_url` is set.
        """
        if self.triton_url is None:
            raise ValueError("PLATES_TRITON_URL is not set: there is no Triton to talk to")
        return self.triton_url.rpartition("://")[2]

    @property
    def triton_tls(self) -> bool:
        """Whether Triton is reached over TLS."""
        return self.triton_url is not None and self.triton_url.startswith("grpcs://")

    @property
    def limits(self) -> Limits:
        """What a photo may be at most."""
        return Limits(max_bytes=self.max_bytes, max_pixels=self.max_pixels)


def _tokens_in(file: Path) -> tuple[SecretStr, ...]:
    """One per line; raises `ValueError` where there is none."""
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ValueError(f"can't read the tokens in {file}: {reason}") from None
    tokens = tuple(SecretStr(line) for line in lines if line and not line.startswith("#"))
    if not tokens:
        # To let everybody in would be the opposite of what was meant.
        raise ValueError(f"{file} holds no token; write one per line")
    return tokens
