"""What an operator can set, each as an environment variable with the prefix PLATES_."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from plate_models.spec import LIMITS, Limits

Port = Annotated[int, Field(ge=0, le=65535)]

_ROOT = Path(__file__).resolve().parent.parent


class Settings(BaseSettings):
    """Settings of the gateway and of the embedded Triton.

    Attributes:
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        triton_url: gRPC address of a Triton elsewhere: `host:8001`, `grpc://host:8001`,
            or `grpcs://host:8001` with TLS. None: an embedded one is started.
        triton_ca_file: Certificates to trust for TLS, in PEM; None trusts the usual ones.
        triton_token: Sent with every request to Triton as `Authorization: Bearer …`.
        request_timeout_s: Seconds from a request's head to its answer, at most.
        triton_http_port: HTTP port of the embedded Triton; 0 takes a free one.
        triton_grpc_port: gRPC port of the embedded Triton; 0 takes a free one.
        model_repository: What the embedded Triton serves.
        max_bytes: Largest photo file. The models refuse more than the default.
        max_pixels: Largest photo. The models refuse more than the default.
        max_in_flight: Photos read at once; more are answered with 503. So are uploads
            that would hold more memory than so many of the largest photos.
        upload_timeout_s: Seconds that a photo may take to come in.
        ready_max_age_s: How long ago a photo must have been read for /readyz.
        ready_timeout_s: Seconds after which /readyz gives up the photo it tries.
    """

    model_config = SettingsConfigDict(env_prefix="PLATES_", frozen=True, protected_namespaces=())

    host: str = "127.0.0.1"
    port: Port = 8080
    triton_url: str | None = None
    triton_ca_file: Path | None = None
    triton_token: SecretStr | None = None
    request_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    triton_http_port: Port = 0
    triton_grpc_port: Port = 0
    model_repository: Path = _ROOT / "model_repository"
    max_bytes: Annotated[int, Field(gt=0, le=LIMITS.max_bytes)] = LIMITS.max_bytes
    max_pixels: Annotated[int, Field(gt=0, le=LIMITS.max_pixels)] = LIMITS.max_pixels
    max_in_flight: Annotated[int, Field(gt=0)] = 32
    upload_timeout_s: Annotated[float, Field(gt=0)] = 30.0
    ready_max_age_s: Annotated[float, Field(gt=0)] = 2.0
    ready_timeout_s: Annotated[float, Field(gt=0)] = 10.0

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
        return value

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
