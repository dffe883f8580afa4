"""All answers of the gateway that are errors, as RFC 9457 problem documents.

Others (404, 405, an unexpected exception) are of the type `about:blank`, as the RFC has it.
"""

import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from starlette.responses import JSONResponse, Response

PROBLEM_PATH = "/problems/"
_REQUEST_PATH = "/requests/"  # of what a document is about, relative to the service

# All kinds of problem that have a document of their own, by their slugs.
KINDS: dict[str, type["Problem"]] = {}


class Problem(Exception):
    """An error with an answer of its own; each subclass with a title is a kind.

    Clients know a kind by its class's name: RateLimited is of the type `/problems/rate-limited`.
    """

    status: ClassVar[int] = 400
    slug: ClassVar[str]
    title: ClassVar[str]
    headers: Mapping[str, str] = {}
    reason: str | None = None  # for the metrics: which bound was met, if there were too many

    def __init_subclass__(cls, status: int | None = None, title: str = "") -> None:
        cls.status, cls.title = status or cls.status, title
        cls.slug = re.sub(r"\B(?=[A-Z])", "-", cls.__name__).lower()
        if title:
            KINDS[cls.slug] = cls

    def __init__(self, detail: str, **extra: Any) -> None:
        """Say what happened this time, and what to do; `extra` are members of the document."""
        super().__init__(detail)
        self.detail = detail
        self.extra = extra

    def document(self, request_id: str) -> dict[str, Any]:
        """The members of the problem document, which names its request."""
        return {
            "type": PROBLEM_PATH + self.slug,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            **self.extra,
            "instance": _REQUEST_PATH + request_id,
        }


class PhotoProblem(Problem):
    """The photo can't be read; one subclass for each `ImageError`."""


class EmptyImage(PhotoProblem, title="The photo is empty"):
    """No bytes came."""


class UnsupportedType(PhotoProblem, status=415, title="The photo's type is not supported"):
    """Not an image, or a type that is not read."""


class BrokenImage(PhotoProblem, status=422, title="The photo is damaged"):
    """Truncated or damaged."""


class TooManyBytes(PhotoProblem, status=413, title="The photo's file is too large"):
    """More bytes than allowed."""


class TooManyPixels(PhotoProblem, status=413, title="The photo has too many pixels"):
    """More pixels than allowed."""


class InvalidForm(Problem, title="The form can't be read"):
    """The body is not the multipart form that its Content-Type promises."""


class UploadTimeout(Problem, status=408, title="The upload took too long"):
    """The photo did not come within the time that the settings allow."""


class UnsupportedMediaType(Problem, status=415, title="The body's type or coding is not supported"):
    """The body is neither a form nor an image, by its Content-Type, or it is compressed."""

    headers: Mapping[str, str] = {"Accept": "multipart/form-data, image/*"}


class MissingImage(Problem, status=422, title="The form holds no photo"):
    """The form has no file in the field `image`."""


class InvalidParameter(Problem, status=422, title="A parameter is not valid"):
    """A parameter has a value that makes no sense, or is unknown."""


class MissingToken(Problem, status=401, title="A token is needed"):
    """The service takes photos only from clients that send one of its tokens."""

    headers: Mapping[str, str] = {"WWW-Authenticate": 'Bearer realm="plates"'}


class WrongToken(Problem, status=403, title="The token is not valid"):
    """The token that came is none of the service's."""


class RateLimited(Problem, status=429, title="Too many requests from this client"):
    """More photos, or more wrong tokens, came from this client than the settings allow."""

    reason = "rate"

    def __init__(self, what: str = "photos", *, retry_after_s: float) -> None:
        seconds = math.ceil(retry_after_s)
        super().__init__(f"Too many {what} came from here. Try again in {seconds} s.")
        self.headers = {"Retry-After": str(seconds)}


class RecognizerProblem(Problem, status=500):
    """Not the client's fault: it is Triton's, or this gateway's."""


class RecognizerFailed(RecognizerProblem, title="The recognizer failed"):
    """The models raised an error on this photo."""


class RecognizerMismatch(
    RecognizerProblem, status=502, title="The recognizer's answer was not understood"
):
    """Triton answered, but not as this gateway's version expects it."""


class RecognizerUnavailable(RecognizerProblem, status=503, title="The recognizer is not available"):
    """Triton can't be reached, or its models are down."""

    headers: Mapping[str, str] = {"Retry-After": "5"}


class RecognizerTimeout(RecognizerProblem, status=504, title="The recognizer took too long"):
    """No answer within the time that the client or the settings allow."""


class Overloaded(RecognizerProblem, status=429, title="The service is busy"):
    """More photos at once than can be read in time."""

    def __init__(self, detail: str, *, reason: str, retry_after_s: float = 1.0) -> None:
        super().__init__(detail)
        self.reason = reason
        self.headers = {"Retry-After": str(max(1, math.ceil(retry_after_s)))}


PHOTO_PROBLEMS = {kind.slug: kind for kind in PhotoProblem.__subclasses__()}


def plain_document(status: int, detail: str, request_id: str) -> dict[str, Any]:
    """A problem document for an HTTP status whose phrase says enough (RFC 9457, 4.2.1)."""
    title, instance = HTTPStatus(status).phrase, _REQUEST_PATH + request_id
    about = {"title": title, "status": status, "detail": detail, "instance": instance}
    return {"type": "about:blank", **about}


def problem_json(document: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """The HTTP answer with a problem document."""
    status = document["status"]
    return JSONResponse(document, status, headers, media_type="application/problem+json")
