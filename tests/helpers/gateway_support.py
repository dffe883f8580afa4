"""Helpers for tests of the gateway: its routes, forms, dialects, and a gateway that is full."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from fake_triton import Holding
from fastapi.routing import iter_route_contexts
from raw_http import HANG_S
from support import PHOTO, post_raw, running_gateway

from api.main import create_app
from api.settings import Settings
from plate_models.release import DEFAULT_GOLDEN

BATCH, READER, ALPR = "/v1/plates/batch", "/v1/plate-reader/", "/v1/vision/alpr"
MULTIPART = "multipart/form-data; boundary=b"


def post_routes(*routers):
    """The paths of all routes with methods other than GET, HEAD and OPTIONS."""
    contexts = list(iter_route_contexts(create_app(Settings(), routers).routes))
    without_body = {"GET", "HEAD", "OPTIONS"}
    return {str(context.path) for context in contexts if (context.methods or set()) - without_body}


def part(content=PHOTO, disposition="", *headers):
    """A part of a form of the type MULTIPART; the photo field unless a disposition is given."""
    disposition = disposition or 'form-data; name="image"; filename="a.jpg"'
    head = "\r\n".join(["--b", f"Content-Disposition: {disposition}", *headers, "", ""])
    return head.encode() + content + b"\r\n"


def form(*parts):
    return b"".join(parts) + b"--b--\r\n"


def send(client, body, path="/v1/plates", kind=MULTIPART):
    return client.post(path, content=body, headers={"content-type": kind})


@contextmanager
def full_gateway(fake, **options):
    """A gateway whose only place is taken by a photo, until the test releases that photo."""
    fake.reply = holding = Holding(but=DEFAULT_GOLDEN.read_bytes())
    with running_gateway(fake, concurrency=1, **options) as client, ThreadPoolExecutor(1) as pool:
        holder = pool.submit(post_raw, client, PHOTO)
        with holding:
            assert holding.arrived.acquire(timeout=HANG_S)
            yield client, holding
        assert holder.result().status_code == 200


def assert_dialect_error(response, status, words=""):
    """Check a short error document in the dialect of Plate Recognizer or CodeProject.AI."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    assert len(response.content) < 1000
    answer, is_alpr = response.json(), "alpr" in response.url.path
    assert words in answer.pop("error" if is_alpr or status == 413 else "detail")
    assert answer == ({"success": False, "code": status} if is_alpr else {})
