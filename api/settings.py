"""What an operator can set, each as an environment variable with the prefix PLATES_."""

import re
import ssl
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from plate_models.cores import photos_at_once, usable_cores
from plate_models.formats import checked
from plate_models.spec import LIMITS, Limits

Port = Annotated[int, Field(ge=0, le=65535)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]

# The type of the error of a setting that names a file which can't be read on this machine.
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


def _origin(value: str) -> str:
    if not _ORIGIN.fullmatch(value):
        raise ValueError(f"{value!r} is no origin such as https://gate.example:8443")
    # As browsers write it.
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

    Each setting's docstring is also its description in what `plates config table` prints.
    """

    model_config = SettingsConfigDict(
        env_prefix="PLATES_",
        env_ignore_empty=True,
        frozen=True,
        protected_namespaces=(),
        use_attribute_docstrings=True,
        # Tokens are among the inputs, and must not stand in an error's message.
        hide_input_in_errors=True,
        # gt=0 would let infinity through.
        allow_inf_nan=False,
    )

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address to listen on."""

    port: Port = 8080
    """Port to listen on; 0 takes a free one."""

    tls_certificate: ReadableFile | None = None
    """Certificate (chain) of the gateway in PEM: with it and its key HTTPS is served instead of
    HTTP. None: a proxy does that, or nothing does."""

    tls_key: Annotated[ReadableFile | None, Field(validate_default=True)] = None
    """Private key of the certificate in PEM, without a passphrase."""

    triton_url: str | None = None
    """gRPC address of a Triton elsewhere: `host:8001`, `grpc://host:8001`, or
    `grpcs://host:8001` with TLS. Where the name has several addresses, photos go to each in
    turn; `ipv4:10.0.0.1:8001,10.0.0.2:8001` lists them. None: an embedded one is started."""

    triton_ca_file: ReadableFile | None = None
    """Certificates to trust for TLS, in PEM; None trusts the usual ones."""

    triton_token: Token | None = None
    """Sent with every request to Triton as `Authorization: Bearer …`."""

    request_timeout_s: Positive = 30.0
    """Seconds from a request's head to its answer, at most. Clients may ask for less with the
    header X-Request-Timeout."""

    triton_host: IPv4Address = IPv4Address("127.0.0.1")
    """Where the embedded Triton listens; loopback, unless it is in a container."""

    triton_http_port: Port = 0
    """HTTP port of the embedded Triton; 0 takes a free one."""

    triton_grpc_port: Port = 0
    """gRPC port of the embedded Triton; 0 takes a free one."""

    triton_metrics_port: Port = 0
    """The port of its own metrics; 0 takes a free one."""

    model_repository: Path = _ROOT / "model_repository"
    """What the embedded Triton serves."""

    profile: Literal["cpu", "gpu"] = "cpu"
    """Where it runs the nets: `cpu` or `gpu`. There is no falling back from one to the other."""

    max_bytes: Annotated[int, Field(gt=0, le=LIMITS.max_bytes)] = LIMITS.max_bytes
    """Largest photo file. The models refuse more than the default."""

    max_pixels: Annotated[int, Field(gt=0, le=LIMITS.max_pixels)] = LIMITS.max_pixels
    """Largest photo. The models refuse more than the default."""

    countries: Annotated[tuple[str, ...], NoDecode, AfterValidator(checked)] = ()
    """Whose formats are known, the likeliest first, such as `sk,cz`: some of the weights'
    countries; none: all of them. A request may name others."""

    threads: Count = Field(default_factory=usable_cores)
    """With which each net computes; by default as many as there are usable cores."""

    concurrency: Count = Field(
        default_factory=lambda known: photos_at_once(known.get("threads", 1))
    )
    """Photos at Triton at once, by default one more than threads; further ones wait."""

    max_waiting: Annotated[int, Field(ge=0)] = 32
    """Photos that wait at most; further ones are answered with 429."""

    upload_memory_bytes: Count = 640 * 2**20
    """Memory that all photos in the gateway may take together, copies included; further ones
    are answered with 429. A photo counts once while it comes in and five times once it is
    complete, because its tensor and its gRPC message are copies; base64 counts four times while
    it comes in, a blurred photo once until it is sent. One batch may have a fifth of it."""

    upload_timeout_s: Positive = 30.0
    """Seconds that a photo may take to come in, also a refused one, or an answer to go out."""

    batch_max_files: Count = 16
    """Photos in one request to /v1/plates/batch."""

    ready_max_age_s: Positive = 2.0
    """How long ago a photo must have been read for /readyz."""

    ready_timeout_s: Positive = 3.0
    """Seconds after which /readyz gives up the photo it tries."""

    tokens: Annotated[tuple[Token, ...], NoDecode] = ()
    """Clients must send one of these, separated by commas; none: every client may send photos."""

    tokens_file: TokensFile | None = None
    """Further tokens, one per line; lines with # in front are comments."""

    rate_limit: Positive | None = None
    """Photos per second for each token, or for each client's address where there are no tokens;
    None: as many as are read. Wrong tokens are limited by address, with this rate or, where it
    is not set, to 30 at once and one per second."""

    rate_burst: Count = 10
    """Photos at once before that rate holds."""

    cors_origins: Annotated[tuple[Annotated[str, AfterValidator(_origin)], ...], NoDecode] = ()
    """Web sites whose pages may use the service, such as `https://gate.example`; none: only its
    own."""

    header_timeout_s: Positive = 10.0
    """Seconds that a request's head may take to come in."""

    max_connections: Count = 512
    """Connections at once; more are answered with 429, and above twice as many closed."""

    log_format: Literal["json", "text"] | None = None
    """`json`, one object per line, or `text`; None: text on a terminal."""

    triton_metrics_url: Annotated[str, Field(pattern=r"^[^/\s]+:\d+$")] | None = None
    """host:port of Triton's own metrics, which then are part of ours."""

    cameras: ReadableFile | None = None
    """File that describes cameras, such as docker/cameras.example.toml: they are followed, and
    their routes are served."""

    status_file: Path | None = None
    """Where the supervisor reports what it restarted."""

    triton_status_file: Path | None = None
    """Where another supervisor reports on a Triton elsewhere; None: the same file."""

    @field_validator("tokens", "cors_origins", "countries", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            value = tuple(part.strip() for part in value.split(",") if part.strip())
            if not value:  # An empty list of tokens would open the service to everybody.
                raise ValueError("there is nothing between the commas: unset it instead")
        return value

    @field_validator("tls_key")
    @classmethod
    def _check_key(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if "tls_certificate" not in info.data:
            return value  # It is wrong itself.
        certificate = info.data["tls_certificate"]
        if (value is None) != (certificate is None):
            raise ValueError("set both PLATES_TLS_CERTIFICATE and PLATES_TLS_KEY, or neither")
        if value is not None:
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                # Without a password OpenSSL would ask for one on the terminal.
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
        """The tokens of both settings; raises `ValueError` if the file can't be read any more."""
        return self.tokens + (_tokens_in(self.tokens_file) if self.tokens_file else ())

    @property
    def limits(self) -> Limits:
        """What a photo may be at most."""
        return Limits(max_bytes=self.max_bytes, max_pixels=self.max_pixels)

    @property
    def batch_concurrency(self) -> int:
        """Photos of one batch at Triton at once: half of the places are left to others."""
        return max(1, self.concurrency // 2)

    @property
    def batch_max_bytes(self) -> int:
        """What the photos of a batch may have together; all of them fit into the memory."""
        together = min(self.batch_max_files * self.max_bytes, self.upload_memory_bytes // 5)
        return max(self.max_bytes, together)


def _tokens_in(file: Path) -> tuple[SecretStr, ...]:
    """One per line; raises `ValueError` where there is none."""
    lines = [line.strip() for line in _text_in(file).splitlines()]
    tokens = tuple(_token(SecretStr(line)) for line in lines if line and not line.startswith("#"))
    if not tokens:
        # To let everybody in would be the opposite of what was meant.
        raise ValueError(f"{file} holds no token; write one per line")
    return tokens
