"""The gateway's errors, as problem documents (RFC 9457).

Errors without a class here (404, 405, unexpected exceptions) have the RFC's type `about:blank`.
"""

import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, ClassVar

from starlette.responses import JSONResponse, Response

PROBLEM_PATH = "/problems/"
_REQUEST_PATH = "/requests/"  # of `instance`, relative to the service

# The kinds of problem that have a type of their own, by slug.
KINDS: dict[str, type["Problem"]] = {}


class Problem(Exception):
    """An error that is answered with a problem document; each subclass with a title is a kind.

    A kind's type is made of its class name: that of RateLimited is `/problems/rate-limited`.
    """

    status: ClassVar[int] = 400
    slug: ClassVar[str]
    title: ClassVar[str]
    headers: Mapping[str, str] = {}
    reason: str | None = None  # for the metrics: the limit that was exceeded, if one was

    def __init_subclass__(cls, status: int | None = None, title: str = "") -> None:
        cls.status, cls.title = status or cls.status, title
        cls.slug = re.sub(r"\B(?=[A-Z])", "-", cls.__name__).lower()
        if title:
            KINDS[cls.slug] = cls

    def __init__(self, detail: str, **extra: Any) -> None:
        """Say in `detail` what happened and what to do; `extra` are members of the document."""
        super().__init__(detail)
        self.detail = detail
        self.extra = extra

    def document(self, request_id: str) -> dict[str, Any]:
        """The members of the problem document, with the request's id in `instance`."""
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
    """The photo has no bytes."""


class UnsupportedType(PhotoProblem, status=415, title="The photo's type is not supported"):
    """The file is not an image, or its type is not supported."""


class BrokenImage(PhotoProblem, status=422, title="The photo is damaged"):
    """The file is truncated or damaged."""


class TooManyBytes(PhotoProblem, status=413, title="The photo's file is too large"):
    """The file has more bytes than the settings allow."""


class TooManyPixels(PhotoProblem, status=413, title="The photo has too many pixels"):
    """The photo has more pixels than the settings allow."""


class InvalidForm(Problem, title="The form can't be read"):
    """The body does not have the format that its Content-Type names."""


class UploadTimeout(Problem, status=408, title="The upload took too long"):
    """The upload did not complete within the time that the settings allow."""


class UnsupportedMediaType(Problem, status=415, title="The body's type or coding is not supported"):
    """The body's Content-Type is neither a form nor an image, or the body is compressed."""

    headers: Mapping[str, str] = {"Accept": "multipart/form-data, image/*"}


class MissingImage(Problem, status=422, title="The form holds no photo"):
    """The form has no file in the field that the route expects, such as `image` or `upload`."""


class InvalidParameter(Problem, status=422, title="A parameter is not valid"):
    """A parameter is unknown, or its value is invalid."""


class MissingToken(Problem, status=401, title="A token is needed"):
    """The service takes photos only from clients that send one of its tokens."""

    headers: Mapping[str, str] = {"WWW-Authenticate": 'Bearer realm="plates"'}


class WrongToken(Problem, status=403, title="The token is not valid"):
    """The request's token is none of the service's."""


class RateLimited(Problem, status=429, title="Too many requests from this client"):
    """The client sent more photos, or more wrong tokens, than the settings allow."""

    reason = "rate"

    def __init__(self, what: str = "photos", *, retry_after_s: float) -> None:
        seconds = math.ceil(retry_after_s)
        super().__init__(f"Too many {what} from this client. Try again in {seconds} s.")
        self.headers = {"Retry-After": str(seconds)}


class RecognizerProblem(Problem, status=500):
    """An error of Triton or of this gateway, not of the client."""


class RecognizerFailed(RecognizerProblem, title="The recognizer failed"):
    """The models raised an error on this photo."""


class RecognizerMismatch(
    RecognizerProblem, status=502, title="The recognizer's answer was not understood"
):
    """Triton's answer does not have the form that this version of the gateway expects."""


class RecognizerUnavailable(RecognizerProblem, status=503, title="The recognizer is not available"):
    """Triton can't be reached, or its models are down."""

    headers: Mapping[str, str] = {"Retry-After": "5"}


class RecognizerTimeout(RecognizerProblem, status=504, title="The recognizer took too long"):
    """Triton did not answer within the time that the client or the settings allow."""


class Overloaded(RecognizerProblem, status=429, title="The service is busy"):
    """There are more photos at once than the service can read in time."""

    def __init__(self, detail: str, *, reason: str, retry_after_s: float = 1.0) -> None:
        super().__init__(detail)
        self.reason = reason
        self.headers = {"Retry-After": str(max(1, math.ceil(retry_after_s)))}


PHOTO_PROBLEMS = {kind.slug: kind for kind in PhotoProblem.__subclasses__()}


def plain_document(status: int, detail: str, request_id: str) -> dict[str, Any]:
    """A problem document of the type `about:blank`, titled by its status (RFC 9457, 4.2.1)."""
    title, instance = HTTPStatus(status).phrase, _REQUEST_PATH + request_id
    about = {"title": title, "status": status, "detail": detail, "instance": instance}
    return {"type": "about:blank", **about}


def problem_json(document: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """The HTTP answer with a problem document."""
    status = document["status"]
    return JSONResponse(document, status, headers, media_type="application/problem+json")
