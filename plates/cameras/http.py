"""The gateway's routes for cameras: their states, passes, events, and pushed frames."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from multiprocessing.connection import Client
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime, BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api.admission import Admission
from api.dependencies import ContextOfRequest, ServicesOfApp
from api.documentation import PROBLEMS, body_of, file_field, problem_response
from api.errors import PHOTO_PROBLEMS
from api.uploads.receiving import UploadForm
from plates.cameras import state_file
from plates.cameras.events import Pass
from plates.cameras.frames import SourceState
from plates.cameras.settings import Camera, CamerasFile, load
from plates.cameras.store import ASCII, PassesQuery, Store, StoreUnavailable

_FORM = UploadForm(("image",))
_ANSWER_S = 5.0  # time-out of a camera's process for one frame
_POLL_S = 0.5
_MOST_WAITING = 4  # frames of one camera
# Polls for the events after a number, shared by the subscribers that wait for these: 200 with polls
# of their own would take a third of a core.
_Polls = dict[int, asyncio.Task[tuple[int, list[tuple[int, str]]]]]


class CameraState(BaseModel):
    """One camera and the state of its source."""

    name: str
    pushed: bool = Field(description="Whether its frames are sent by POST")
    state: SourceState | None = Field(description="null until the camera's process has started")
    updated_s: float | None = Field(description="Seconds since the process wrote this state")


class Cameras(BaseModel):
    """All cameras."""

    cameras: list[CameraState]


class PassesAnswer(BaseModel):
    """Passes, the latest first."""

    passes: list[Pass]
    next: int | None = Field(description="`before` of the next page; null on the last page")


class FrameParameters(BaseModel):
    """The parameters of a frame."""

    model_config = {"extra": "forbid"}

    captured: AwareDatetime | None = Field(
        None,
        ge=datetime(1970, 1, 1, tzinfo=UTC),
        lt=datetime(2100, 1, 1, tzinfo=UTC),
        description="When the frame was captured; by default, when it arrives",
    )


async def _guard(request: Request, services: ServicesOfApp) -> AsyncGenerator[None]:
    """Require a token, as these routes show plates; name a database that is away."""
    await services.access.require(request)
    try:
        yield
    except StoreUnavailable as error:
        raise HTTPException(
            503, "The database can't be reached. Try again.", {"Retry-After": "5"}
        ) from error


def router_for(path: Path) -> APIRouter:
    """The routes for the cameras in the processes' copy of the settings file."""
    file = load(path)
    return make_router(file, Store(file.storage), path.parent)


def make_router(file: CamerasFile, store: Store, folder: Path) -> APIRouter:
    """The routes for these cameras, whose processes have sockets and state files in a folder."""
    router = APIRouter(tags=["cameras"], responses=PROBLEMS)
    guarded = [Depends(_guard)]
    cameras = {camera.name: camera for camera in file.cameras}
    # A camera's process takes one frame at a time: further pushes would only occupy threads.
    queues = {name: Admission(1, _MOST_WAITING) for name in cameras}
    polls: _Polls = {}

    def known(name: str) -> Camera:
        if name not in cameras:
            raise HTTPException(404, f"There is no camera {name!r:.80}.")
        return cameras[name]

    @router.get("/v1/cameras", dependencies=guarded, summary="The cameras' states")
    def states() -> Cameras:
        """The state of each camera's stream: status, dropped frames, delay, reconnects."""
        return Cameras(
            cameras=[
                CameraState(name=name, pushed=camera.source is None, **_state(folder, name))
                for name, camera in cameras.items()
            ]
        )

    @router.post(
        "/v1/cameras/{camera}/frames",
        status_code=202,
        response_class=Response,
        responses={
            404: problem_response("There is no such camera"),
            409: problem_response("The camera has a source of its own"),
        },
        openapi_extra={"requestBody": body_of(_FORM, {"image": file_field("The frame")})},
        summary="Push a frame of a camera",
    )
    async def push_frame(
        camera: str,
        parameters: Annotated[FrameParameters, Query()],
        services: ServicesOfApp,
        context: ContextOfRequest,
    ) -> Response:
        """Push one frame of a camera without a source; send frames in the order of their times.

        Send the frame as the form field `image`, or as the body with an `image/*` type. Its plates
        become part of passes: see /v1/events.
        """
        if known(camera).source is not None:
            raise HTTPException(409, f"The camera {camera!r} has a source of its own.")
        upload, wanted = await services.received(context, _FORM, parameters, queues[camera])
        captured = wanted.captured.timestamp() if wanted.captured else None

        async def push() -> str:
            async with queues[camera].place(context.deadline):
                return await run_in_threadpool(_push, folder, camera, upload.photo, captured)

        try:
            problem = await context.cancel_on_disconnect(push())
        except (OSError, EOFError):
            raise HTTPException(
                503, "The camera's process can't be reached. Try again.", {"Retry-After": "2"}
            ) from None
        if problem:
            slug, _, detail = problem.partition(": ")
            raise PHOTO_PROBLEMS[slug](detail)
        return Response(status_code=202)

    @router.get(
        "/v1/passes", dependencies=guarded, response_model=PassesAnswer, summary="Search passes"
    )
    def search(query: Annotated[PassesQuery, Query()]) -> Response:
        """Search the stored passes by text, camera and time."""
        found = store.search(query)
        next_page = found[-1][0] if len(found) == query.limit else None
        passes = ",".join(payload for _, payload in found)  # The payloads are JSON already.
        content = f'{{"passes":[{passes}],"next":{json.dumps(next_page)}}}'
        return Response(content, media_type="application/json")

    @router.get(
        "/v1/passes/{pass_id}/picture",
        dependencies=guarded,
        response_class=Response,
        responses={
            200: {"content": {"image/jpeg": {}}},
            404: problem_response("No picture of this pass is kept"),
        },
        summary="The plate of a pass",
    )
    def picture(pass_id: Annotated[str, PathParameter(pattern=ASCII)]) -> Response:
        """The rectified plate as JPEG, if pictures are kept."""
        if (content := store.picture(pass_id)) is None:
            raise HTTPException(404, "No picture of this pass is kept.")
        return Response(content, media_type="image/jpeg")

    @router.get(
        "/v1/events",
        dependencies=guarded,
        response_class=StreamingResponse,
        responses={
            200: {"content": {"text/event-stream": {}}},
            404: problem_response("There is no such camera"),
        },
        summary="Stream events",
    )
    def events(
        camera: Annotated[str, Query(description="Only events of this camera")] = "",
        last_event_id: Annotated[int | None, Header(ge=0, le=2**62)] = None,
    ) -> Response:
        """Server-sent events, `pass.updated` and `pass.ended`, with a pass as the data.

        `Last-Event-ID` resumes after that event, as far as later ones are still kept.
        """
        if camera:
            known(camera)
        last = store.last_seq()
        start = last if last_event_id is None else min(last, last_event_id)
        return StreamingResponse(
            _stream(store, polls, start, camera),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    return router


def _state(folder: Path, camera: str) -> dict[str, Any]:
    path = state_file(folder, camera)
    try:
        updated_s = time.time() - path.stat().st_mtime
        return {"state": json.loads(path.read_text()), "updated_s": round(updated_s, 1)}
    except FileNotFoundError:
        return {"state": None, "updated_s": None}


async def _stream(store: Store, polls: _Polls, seq: int, camera: str) -> AsyncGenerator[str]:
    while True:
        yield ": listening\n\n"  # Only a write reveals that the connection is closed.
        if seq not in polls:
            polls[seq] = asyncio.create_task(_poll(store, polls, seq))
        # A subscriber that leaves must not end the poll of the others.
        seq, found = await asyncio.shield(polls[seq])
        for seq, payload in found:
            event = json.loads(payload)
            if camera in ("", event["camera"]):
                yield f"id: {seq}\nevent: {event['type']}\ndata: {payload}\n\n"


async def _poll(store: Store, polls: _Polls, seq: int) -> tuple[int, list[tuple[int, str]]]:
    await asyncio.sleep(_POLL_S)
    del polls[seq]  # Subscribers that come later wait for the next one.
    try:
        start = min(seq, await asyncio.to_thread(store.last_seq))  # lower in a new database
        return start, await asyncio.to_thread(store.events_after, start)
    except StoreUnavailable:
        return seq, []


def _push(folder: Path, camera: str, file: bytes, captured: float | None) -> str:
    """Send a frame, an image file, to a camera's process.

    Returns "" if the process accepts it, else what is wrong with the file. Raises OSError if the
    process can't be reached, TimeoutError if it is busy, and EOFError if it ends meanwhile.
    """
    with Client(str(folder / camera), "AF_UNIX") as connection:
        connection.send_bytes(json.dumps(captured).encode() + b"\n" + file)
        if not connection.poll(_ANSWER_S):
            raise TimeoutError(f"the camera's process did not answer within {_ANSWER_S:g} s")
        return connection.recv_bytes().decode()
