"""What tests of the gateway say to it, and what they expect of a problem."""

import httpx
from fake_triton import FakeTriton
from photo_files import GOOD

from api.errors import kinds
from api.settings import Settings

PHOTO = GOOD["jpeg"]
# By the problem's slug.
STATUS = {kind.slug: kind.status for kind in kinds()}


def settings_for(fake: FakeTriton, **options: object) -> Settings:
    return Settings(triton_url=f"grpc://127.0.0.1:{fake.port}", **options)


def post_raw(client: httpx.Client, photo: bytes, **parameters: object) -> httpx.Response:
    headers = {"content-type": "image/jpeg"}
    return client.post("/v1/plates", content=photo, headers=headers, params=parameters)


def post_form(client: httpx.Client, photo: bytes, **fields: object) -> httpx.Response:
    files = {"image": ("photo.jpg", photo)}
    return client.post("/v1/plates", files=files, data={k: str(v) for k, v in fields.items()})


def number(client: httpx.Client, sample: str) -> float:
    """What /metrics tells, added up over all samples that begin so."""
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(sample))


def assert_problem(response: httpx.Response, status: int, slug: str | None) -> dict[str, object]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["type"] == ("about:blank" if slug is None else f"/problems/{slug}")
    assert document["title"]
    assert document["detail"]
    assert document["instance"] == "/requests/" + response.headers["x-request-id"]
    return document
