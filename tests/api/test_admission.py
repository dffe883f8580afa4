"""The admission queue, deadlines and disconnects, also in a real Triton's queue and nets."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from unittest.mock import Mock

import cv2
import numpy as np
import pytest
from fake_triton import Holding, outputs, sleeping
from gateway_support import full_gateway
from photo_files import encode
from raw_http import HANG_S, assert_refused, begin_upload, everything
from support import PHOTO, SCENE, assert_problem, number, post_raw, running_gateway, wait_until
from tritonclient import grpc as triton_grpc
from tritonclient.utils import InferenceServerException

from api.admission import Admission
from api.errors import Overloaded
from api.request import Deadline
from plate_models.images import decode
from plate_models.release import DEFAULT_GOLDEN

PATIENT_S = 1000.0
SCENE_PHOTO = SCENE.read_bytes()
DISCONNECTED = 'plates_requests_total{method="POST",route="/v1/plates",status="499"}'


def deadline_in(seconds):
    return Deadline(time.monotonic() + seconds)


class Photo:
    """A photo that waits for a place and keeps it until the test calls `end`."""

    def __init__(self, admission, patience_s=PATIENT_S):
        self._was_read = asyncio.Event()
        self.task = asyncio.create_task(self._hold_place(admission, patience_s))

    async def _hold_place(self, admission, patience_s):
        async with admission.place(deadline_in(patience_s)):
            await self._was_read.wait()

    async def end(self):
        self._was_read.set()
        await self.task


async def settle():
    """Let every task run until it blocks."""
    for _ in range(10):
        await asyncio.sleep(0)


async def assert_refused_at_once(photo, retry_after):
    with pytest.raises(Overloaded) as refused:
        await photo.task
    assert refused.value.reason == "wait"
    assert refused.value.headers["Retry-After"] == str(retry_after)


def test_a_wait_that_does_not_fit_the_deadline_is_refused_at_once(monkeypatch):
    clock = Mock(return_value=0.0)
    monkeypatch.setattr("api.admission.time", Mock(monotonic=clock))

    async def test():
        admission = Admission(1, 10)
        for _ in range(40):  # until the deviation has decayed
            async with admission.place(deadline_in(PATIENT_S)):
                clock.return_value += 3
            with suppress(ValueError):  # Failures at once don't make photos seem quick.
                async with admission.place(deadline_in(PATIENT_S)):
                    raise ValueError
        inside, waiting = Photo(admission), Photo(admission)
        await settle()
        # Two photos before it take three seconds each, and it takes three itself: 9 > 8.
        await assert_refused_at_once(Photo(admission, 8), retry_after=6)
        with pytest.raises(Overloaded):
            admission.refuse_if_full(deadline_in(8))
        admission.refuse_if_full(deadline_in(11))
        clock.return_value += 100  # Triton hangs: there are no new measurements.
        await assert_refused_at_once(Photo(admission, 50), retry_after=60)
        inside.task.cancel()  # This failure shows how slow Triton is.
        await waiting.end()
        # A free place is given nevertheless: otherwise a wrong estimate would never be corrected.
        first = Photo(admission, 50)
        await settle()
        await assert_refused_at_once(Photo(admission, 50), retry_after=60)
        await first.end()
        clock.return_value += 60
        burst = [Photo(admission, 50) for _ in range(10)]
        await settle()
        assert (admission.in_flight, admission.waiting) == (1, 9)
        for photo in burst:  # first come, first served
            await photo.end()
        slow, late = Photo(admission), Photo(admission, 11)
        await settle()
        clock.return_value += 20
        await slow.end()
        with pytest.raises(Overloaded):  # Its turn came too late: the place is free again.
            await late.task
        last = Photo(admission)
        await settle()
        assert (admission.in_flight, admission.waiting) == (1, 0)
        await last.end()
        slow = Photo(wide := Admission(4, 10))
        await settle()
        clock.return_value += 20
        for took_s in (3, 0):
            async with wide.place(deadline_in(PATIENT_S)):
                clock.return_value += took_s
        # The last one waits for 1.3 s, not 5.3, and is likely to take at most 10.1 itself.
        patient = [slow, *(Photo(wide, 14) for _ in range(5))]
        await settle()
        assert (wide.in_flight, wide.waiting) == (4, 2), patient
        await assert_refused_at_once(Photo(wide, 12), retry_after=2)

    asyncio.run(asyncio.wait_for(test(), HANG_S))


def post(client, timeout):
    return post_raw(client, PHOTO, {"x-request-timeout": str(timeout)})


def test_invalid_time_limits_are_refused(client, fake):
    for timeout in ("0", "-1", "nan", "inf", "-inf", "soon", "", "1,5"):
        document = assert_problem(post(client, timeout), 422, "invalid-parameter")
        assert "X-Request-Timeout" in document["detail"]
    assert not fake.photos


@pytest.mark.parametrize(("limit_s", "timeout"), [(30, 2), (2, None), (2, 1000)])
def test_the_shorter_time_limit_also_applies_in_triton(fake, limit_s, timeout):
    fake.reply = sleeping(4)
    with running_gateway(fake, request_timeout_s=limit_s) as client:
        answer = post_raw(client, PHOTO) if timeout is None else post(client, timeout)
        assert_problem(answer, 504, "recognizer-timeout")
    assert 0 < fake.timeout_us <= 2_000_000  # Triton's queue has the same limit


@pytest.mark.settings(header_timeout_s=0.5)
def test_the_deadline_counts_from_the_head_and_the_limit_for_heads_spares_slow_photos(client, fake):
    named = (b"X-Request-Timeout: 10", b"X-Request-Id: gate-7")
    with begin_upload(client, PHOTO[:100], *named) as connection:
        time.sleep(1)
        connection.sendall(PHOTO[100:])
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert 0 < fake.timeout_us <= 9_200_000
    assert fake.request.id == "gate-7"


def test_a_photo_whose_deadline_ends_in_the_queue_gets_429(fake):
    with full_gateway(fake) as (client, _):
        assert_problem(post(client, 2), 429, "overloaded")
        assert number(client, 'plates_refused_total{reason="deadline"}') == 1
        assert (number(client, "plates_in_flight"), number(client, "plates_waiting")) == (1, 0)


@pytest.mark.settings(concurrency=1)
def test_a_late_photo_gets_429_if_it_spent_most_of_its_time_in_the_queue(client, fake, monkeypatch):
    """Its turn comes, but Triton is too slow for the rest of its time."""
    monkeypatch.setattr("api.admission._MEMORY_S", -1)  # no estimate: it would refuse the photo
    fake.reply = sleeping(6)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(post_raw, client, PHOTO)
        wait_until(lambda: len(fake.photos) == 1)
        assert_problem(post(client, 8), 429, "overloaded")
        assert number(client, 'plates_refused_total{reason="late"}') == 1
        assert other.result().status_code == 200


def test_a_full_queue_refuses_photos_by_their_head_but_not_the_canary(fake):
    with full_gateway(fake, max_waiting=0) as (client, _):
        with begin_upload(client, b"", b"Expect: 100-continue") as connection:
            answer = everything(connection)
        assert_refused(answer, 429, "overloaded")
        assert b"retry-after: 1" in answer.lower()
        assert number(client, 'plates_refused_total{reason="full"}') == 1
        assert client.get("/readyz").status_code == 200
        assert fake.photos == [PHOTO, DEFAULT_GOLDEN.read_bytes()]


@pytest.mark.usefixtures("no_tracebacks")
@pytest.mark.settings(concurrency=1, max_waiting=0)
def test_an_unfinished_upload_takes_no_place_and_leaves_no_error(client, fake):
    with begin_upload(client, PHOTO[:-1]):
        assert {post_raw(client, PHOTO).status_code for _ in range(5)} == {200}
    wait_until(lambda: number(client, DISCONNECTED) == 1)
    assert set(fake.photos) == {PHOTO}


@pytest.mark.settings(concurrency=1, max_waiting=0)
def test_a_disconnect_while_triton_works_frees_the_place(client, fake):
    fake.reply = holding = Holding()
    with holding:
        with begin_upload(client, PHOTO):
            assert holding.arrived.acquire(timeout=HANG_S)
            assert number(client, "plates_in_flight") == 1
        assert fake.cancelled.acquire(timeout=HANG_S)  # the call to Triton is cancelled
        wait_until(lambda: number(client, "plates_in_flight") == 0)
    fake.reply = lambda _: outputs()
    assert post_raw(client, PHOTO).status_code == 200
    wait_until(lambda: number(client, DISCONNECTED) == 1)


def test_photos_wait_for_their_turn_unless_their_clients_disconnect(fake):
    with full_gateway(fake, max_waiting=2) as (client, holding), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post_raw, client, PHOTO)
        with begin_upload(client, PHOTO):
            wait_until(lambda: number(client, "plates_waiting") == 2)
            assert_problem(post_raw(client, PHOTO), 429, "overloaded")
        wait_until(lambda: number(client, "plates_waiting") == 1)
        holding.release.set()
        assert waiting.result().status_code == 200
        assert number(client, "plates_queue_seconds_count") == 2
        assert 0 < number(client, "plates_queue_seconds_sum") < HANG_S
    assert fake.photos == [PHOTO] * 2  # the disconnected client's photo was never sent to Triton


def answer_count(client, model):
    (found,) = client.get_inference_statistics(model).model_stats
    return int(found.inference_stats.success.count)


@pytest.mark.live
@pytest.mark.control  # The photos of another service's supervisor would count, too.
def test_the_nets_do_not_run_for_disconnected_clients_or_late_photos(triton):
    """When all clients disconnect, Triton decodes two photos; the others are in its queue."""
    # A progressive JPEG is slow to decode.
    large = encode(cv2.resize(decode(SCENE_PHOTO), (8000, 6000)), "JPEG", progressive=True)
    clients = 8
    direct = triton_grpc.InferenceServerClient(triton.grpc_url)
    with direct, running_gateway(triton.grpc_url, concurrency=clients, max_waiting=0) as client:
        before = {net: answer_count(direct, net) for net in ("yolo", "stn", "lprnet")}
        with ExitStack() as connections:
            uploads = [
                connections.enter_context(begin_upload(client, large[:-1], length=len(large)))
                for _ in range(clients)
            ]
            # All end together, so that no photo is decoded before the last one has its place.
            for upload in uploads:
                upload.sendall(large[-1:])
            wait_until(lambda: number(client, "plates_in_flight") == clients)
        wait_until(lambda: number(client, "plates_in_flight") == 0)
        assert post_raw(client, SCENE_PHOTO).status_code == 200
        # Only the photo whose client stayed was read.
        read = {net: answer_count(direct, net) - before[net] for net in before}
        assert read == dict.fromkeys(before, 1)

        before = answer_count(direct, "yolo")
        tensor = triton_grpc.InferInput("image", [len(SCENE_PHOTO)], "UINT8")
        tensor.set_data_from_numpy(np.frombuffer(SCENE_PHOTO, np.uint8))
        with pytest.raises(InferenceServerException, match=r"Request timeout expired$") as refused:
            direct.infer("plate_recognition", [tensor], timeout=1)  # microsecond
        assert refused.value.status() == "StatusCode.UNAVAILABLE"
        response = post_raw(client, large, {"x-request-timeout": "0.15"})
        assert_problem(response, 504, "recognizer-timeout")
        assert answer_count(direct, "yolo") == before
        assert post_raw(client, SCENE_PHOTO).status_code == 200
        assert answer_count(direct, "yolo") == before + 1
