"""The service's settings: environment variables with the prefix PLATES_."""

import re
import ssl
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from plate_models.cores import photos_at_once, usable_cores
from plate_models.formats import checked_countries
from plate_models.spec import LIMITS, Limits

Port = Annotated[int, Field(ge=0, le=65535)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]

# The error type of a setting whose file can't be read on this machine.
UNREADABLE_FILE = "unreadable_file"

_ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+")
_HOST_AND_PORT = r"(?:[\w.\-]+|\[[0-9A-Fa-f:.]+\]):\d+"
_TRITON_URL = re.compile(
    rf"(?:grpcs?://)?(?:{_HOST_AND_PORT}|ipv[46]:{_HOST_AND_PORT}(?:,{_HOST_AND_PORT})*)"
)
_TOKEN = re.compile(r"[!-+\--~]+")
_ROOT = Path(__file__).resolve().parent.parent


def _text_in(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise PydanticCustomError(
            UNREADABLE_FILE, "can't read {file}: {reason}", {"file": str(file), "reason": reason}
        ) from None


def _readable(file: Path) -> Path:
    _text_in(file)
    return file


def _ca_certificates(file: Path) -> Path:
    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        raise ValueError(f"{file} has no CA certificates in PEM ({error.reason})") from None
    return file


def _origin(value: str) -> str:
    if not _ORIGIN.fullmatch(value):
        raise ValueError(f"{value!r} is no origin such as https://gate.example:8443")
    # Browsers send origins in lower case and without the default port.
    return re.sub(r"(?<=^https):(.*):443$|(?<=^http):(.*):80$", r":\1\2", value.lower())


def _token(value: SecretStr) -> SecretStr:
    if not _TOKEN.fullmatch(value.get_secret_value()):
        raise ValueError("a token is visible ASCII without spaces and commas")
    return value


ReadableFile = Annotated[Path, AfterValidator(_readable)]
TokensFile = Annotated[Path, AfterValidator(lambda file: _tokens_in(file) and file)]
Token = Annotated[SecretStr, AfterValidator(_token)]


class Settings(BaseSettings):
    """Settings of the gateway and of the embedded Triton.

    The docstring of each field is its description in the table of `plates config table`.
    """

    model_config = SettingsConfigDict(
        env_prefix="PLATES_",
        env_ignore_empty=True,
        frozen=True,
        use_attribute_docstrings=True,
        # Inputs include tokens, which must not appear in error messages.
        hide_input_in_errors=True,
        # The constraint gt=0 alone accepts infinity.
        allow_inf_nan=False,
    )

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address to listen on."""

    port: Port = 8080
    """Port to listen on; 0 chooses a free port."""

    tls_certificate: ReadableFile | None = None
    """Certificate (chain) of the gateway in PEM. With it and its key the gateway serves HTTPS
    instead of HTTP. Unset: HTTP, without TLS or behind a proxy that adds it."""

    tls_key: Annotated[ReadableFile | None, Field(validate_default=True)] = None
    """Private key of the certificate in PEM, without a passphrase."""

    triton_url: str | None = None
    """gRPC address of an external Triton: `host:8001`, `grpc://host:8001`, or
    `grpcs://host:8001` with TLS. If the name has several addresses, they get photos in turn;
    `ipv4:10.0.0.1:8001,10.0.0.2:8001` lists addresses. Unset: start an embedded Triton."""

    triton_ca_file: Annotated[ReadableFile, AfterValidator(_ca_certificates)] | None = None
    """CA certificates to trust for TLS with Triton, in PEM. Unset: gRPC's default ones."""

    triton_token: Token | None = None
    """Token that every request to Triton carries as `Authorization: Bearer …`."""

    request_timeout_s: Positive = 30.0
    """Deadline of a request in seconds, counted from its head to its answer. Clients may set a
    shorter one with the header X-Request-Timeout."""

    triton_host: IPv4Address = IPv4Address("127.0.0.1")
    """Address on which the embedded Triton listens: loopback, except in a container."""

    triton_http_port: Port = 0
    """HTTP port of the embedded Triton; 0 chooses a free port."""

    triton_grpc_port: Port = 0
    """gRPC port of the embedded Triton; 0 chooses a free port."""

    triton_metrics_port: Port = 0
    """Port of the embedded Triton's metrics; 0 chooses a free port."""

    model_repository: Path = _ROOT / "model_repository"
    """Folder of the models that the embedded Triton serves."""

    profile: Literal["cpu", "gpu"] = "cpu"
    """Where the embedded Triton runs the nets: `cpu` or `gpu`, with no fallback to the other."""

    max_bytes: Annotated[int, Field(gt=0, le=LIMITS.max_bytes)] = LIMITS.max_bytes
    """Largest photo file, in bytes. The models refuse files larger than the default."""

    max_pixels: Annotated[int, Field(gt=0, le=LIMITS.max_pixels)] = LIMITS.max_pixels
    """Largest photo, in pixels. The models refuse photos larger than the default."""

    countries: Annotated[tuple[str, ...], NoDecode, AfterValidator(checked_countries)] = ()
    """Countries whose plate formats are recognized, the most likely first, such as `sk,cz`. Unset:
    the countries that the weights name. Requests may name others."""

    threads: Count = Field(default_factory=usable_cores)
    """Number of threads of each net; by default the number of usable cores."""

    concurrency: Count = Field(
        default_factory=lambda known: photos_at_once(known.get("threads", 1))
    )
    """Maximum number of photos at Triton, by default PLATES_THREADS + 1; further photos wait."""

    max_waiting: Annotated[int, Field(ge=0)] = 32
    """Maximum number of photos that wait for Triton; further ones are answered with 429."""

    upload_memory_bytes: Count = 640 * 2**20
    """Maximum memory for all photos in the gateway, copies included; further photos are
    answered with 429. A photo counts once during its upload and five times after it, because
    its tensor and its gRPC message are copies; base64 counts four times during its upload, a
    blurred photo once until it is sent. One batch may take a fifth of this memory."""

    upload_timeout_s: Positive = 30.0
    """Maximum seconds for receiving a photo, even a refused one, or for sending an answer."""

    batch_max_files: Count = 16
    """Maximum number of photos in one request to /v1/plates/batch."""

    ready_max_age_s: Positive = 2.0
    """/readyz needs no test photo for this many seconds after a photo with a plate was read."""

    ready_timeout_s: Positive = 3.0
    """Time-out of the test photo of /readyz, in seconds."""

    tokens: Annotated[tuple[Token, ...], NoDecode] = ()
    """Access tokens, separated by commas: clients must send one of them. Unset, and no
    PLATES_TOKENS_FILE: every client may send photos."""

    tokens_file: TokensFile | None = None
    """File with further tokens, one per line; lines that begin with # are comments."""

    rate_limit: Positive | None = None
    """Photos per second that each token may send, or each client address if there are no tokens.
    Unset: no limit. Wrong tokens are limited by client address: to this rate or, if it is
    unset, to 30 at once and one per second."""

    rate_burst: Count = 10
    """Photos that a client may send at once before PLATES_RATE_LIMIT slows it down."""

    cors_origins: Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode] = ()
    """Web sites whose pages may use the service, such as `https://gate.example`. Unset: only the
    service's own page."""

    header_timeout_s: Positive = 10.0
    """Maximum seconds for receiving a request's head."""

    max_connections: Count = 512
    """Maximum number of connections; as many again are answered with 429, the rest is closed."""

    log_format: Literal["json", "text"] | None = None
    """`json` (one object per line) or `text`. Unset: text on a terminal, JSON elsewhere."""

    triton_metrics_url: Annotated[str, Field(pattern=r"^[^/\s]+:\d+$")] | None = None
    """host:port of Triton's own metrics, which /metrics then includes."""

    cameras: ReadableFile | None = None
    """File that describes cameras, such as docker/cameras.example.toml: the service reads their
    streams and serves their routes."""

    status_file: Path | None = None
    """File in which the supervisor reports its state and what it restarted."""

    triton_status_file: Path | None = None
    """Status file of the supervisor of an external Triton. Unset: PLATES_STATUS_FILE."""

    @field_validator("tokens", "cors_origins", "countries", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            value = tuple(part.strip() for part in value.split(",") if part.strip())
            if not value:  # An empty list of tokens would admit all clients.
                raise ValueError("there is nothing between the commas: unset it instead")
        return value

    @field_validator("tls_key")
    @classmethod
    def _check_key(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if "tls_certificate" not in info.data:
            return value  # The certificate is invalid, which is reported already.
        certificate = info.data["tls_certificate"]
        if (value is None) != (certificate is None):
            raise ValueError("set both PLATES_TLS_CERTIFICATE and PLATES_TLS_KEY, or neither")
        if value is not None:
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                # Without an empty password OpenSSL would prompt for one on the terminal.
                context.load_cert_chain(certificate, value, password="")
            except ssl.SSLError as error:
                raise ValueError(
                    f"{value} and {certificate} are not an unencrypted private key and its "
                    f"certificate in PEM ({error.reason or 'unknown format'})"
                ) from None
        return value

    @field_validator("triton_url")
    @classmethod
    def _check_triton_url(cls, value: str | None) -> str | None:
        ports = [int(port) for port in re.findall(r":(\d+)(?=,|$)", value or "")]
        if value and not (_TRITON_URL.fullmatch(value) and 0 < min(ports) <= max(ports) < 65536):
            raise ValueError(
                f"{value!r} is not Triton's gRPC address; give host:port, grpc://host:port, or "
                "grpcs://host:port with TLS (the port is usually 8001); for several Tritons one "
                "name that has all addresses, or list them: ipv4:10.0.0.1:8001,10.0.0.2:8001"
            )
        return value or None

    def accepted_tokens(self) -> tuple[SecretStr, ...]:
        """The tokens of both settings; raises `ValueError` if the file has become unreadable."""
        return self.tokens + (_tokens_in(self.tokens_file) if self.tokens_file else ())

    @property
    def limits(self) -> Limits:
        """The largest photo that is accepted."""
        return Limits(max_bytes=self.max_bytes, max_pixels=self.max_pixels)

    @property
    def batch_concurrency(self) -> int:
        """Maximum number of photos of a batch at Triton: half of the places stay free."""
        return max(1, self.concurrency // 2)

    @property
    def batch_max_bytes(self) -> int:
        """Maximum size of a batch's photos together; with all copies they fit into the memory."""
        together = min(self.batch_max_files * self.max_bytes, self.upload_memory_bytes // 5)
        return max(self.max_bytes, together)


def _tokens_in(file: Path) -> tuple[SecretStr, ...]:
    """Read one token per line; raises `ValueError` if there is none."""
    lines = [line.strip() for line in _text_in(file).splitlines()]
    tokens = tuple(_token(SecretStr(line)) for line in lines if line and not line.startswith("#"))
    if not tokens:
        # Without tokens the service would admit all clients, the opposite of what is meant.
        raise ValueError(f"{file} holds no token; write one per line")
    return tokens
