"""From scripted frames to events: each vehicle is one pass, in any kind of traffic."""

import time
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import av
import numpy as np
import pytest
from scripted import ALPHABET, frame_at, seen

from plate_models.recognition.calibration import Calibration
from plates.cameras.events import Model, Stream
from plates.cameras.fusion import Reader
from plates.cameras.lists import PlateList
from plates.cameras.passes import Passes
from plates.cameras.watch import annotated_videos, follow

CAR, OTHER, ALIKE = "X556XM750", "B840CK197", "X558XM750"
ZONES = {"left": ((0, 0.6), (0.27, 0.6), (0.27, 1), (0, 1))}
ZONES["right"] = ((0.6, 0.2), (0.75, 0.2), (0.75, 1), (0.6, 1))
READER = Reader(model=Model(version="1", weights="sha256:0"))


def passes_of(**options):
    return Passes("gate", replace(READER, calibration=Calibration(readable_from=0)), **options)


def run(passes, script, fps=5, times=None):
    """Feed a script (second to plates, or None without motion); returns all events to the end."""
    events = []
    for second in times or np.arange(0, script.__defaults__[-1], 1 / fps).tolist():
        frame, plates = frame_at(second), script(second)
        reports = passes.hold(frame) if plates is None else passes.add(frame, plates, Stream())
        events += [report.event for report in reports]
    return events + [report.event for report in passes.close()]


def ended(events):
    return [event for event in events if event.type == "pass.ended"]


def texts(events):
    return sorted(event.text for event in ended(events))


def approaching(second, _end=8):
    if not 1 <= second < 4:
        return []
    near = (second - 1) / 3
    return [seen(CAR, (400 + 200 * near, 200 + 300 * near), 60 + 90 * near)]


@pytest.mark.parametrize("fps", [5, 25])
def test_a_car_that_approaches_is_one_pass(fps):
    events = run(passes_of(), approaching, fps)
    [last] = ended(events)
    assert len({event.id for event in events}) == 1
    assert [event.revision for event in events] == list(range(1, len(events) + 1))
    first = events[0]
    # The first event must come early: gates open before the car has stopped.
    assert first.type == "pass.updated" and first.time.last <= frame_at(1.5).captured
    assert (last.text, last.format, last.readable) == (CAR, "ru.car", True)
    assert (last.text_native, last.region.name) == ("Х556ХМ750", "Moscow Oblast")
    assert last.motion.direction == "approaching" and not last.motion.stationary
    assert last.evidence.frames_seen == last.evidence.frames_read == 3 * fps
    assert last.time.first == frame_at(1).captured and last.time.position_s == 1
    assert last.time.last == pytest.approx(frame_at(4).captured, abs=1.5 / fps)


def test_an_annotated_video_shows_a_plate_until_it_has_left(tmp_path):
    shades = {0: 0, 0.2: 0, 7 * 86_400: 60}  # The clock is set before the last frame.
    frames = [replace(frame_at(s), image=np.full((200, 400, 3), shades[s], "u1")) for s in shades]
    source = SimpleNamespace(frames=lambda: frames, state=Stream())
    read = [[], [seen(CAR, (200, 100))]]
    with annotated_videos(tmp_path, 5) as write:
        list(map(write, follow(source, passes_of(), lambda _: read.pop())))
    with av.open(tmp_path / "gate.mp4") as film:
        shown = [frame.to_ndarray(format="gray").max() > 100 for frame in film.decode(video=0)]
    assert shown == [True, True, False], "the second frame is not read: nothing moves"


def test_weights_with_another_alphabet_start_a_new_pass():
    def script(second, _end=6):
        plate = seen(CAR, (400, 400))
        if second < 3:
            return [plate]
        # From now on the alphabet lacks its last character.
        passes.reader = Reader(spec=replace(passes.reader.spec, alphabet=ALPHABET[:-1]))
        return [replace(plate, log_probs=np.delete(plate.log_probs, -2, axis=0))]

    passes = passes_of()
    assert texts(run(passes, script)) == [CAR, CAR]


@pytest.mark.parametrize(
    ("script", "direction"),
    [
        (lambda s, _end=6: [seen(CAR, (600 + 30 * s, 400 - 50 * s), 150 - 20 * s)], "leaving"),
        (lambda s, _end=4: [seen(CAR, (1200 - 280 * s, 400), 90 + 10 * s)], "left"),
    ],
)
def test_the_direction_of_motion_is_reported(script, direction):
    [event] = ended(run(passes_of(), script))
    assert (event.motion.direction, event.motion.stationary) == (direction, False)


def test_a_pass_ends_once_a_few_seconds_after_its_last_detection():
    passes, ends = passes_of(), []
    for second in np.arange(0, 12, 0.2).tolist():
        plates = [seen(CAR, (400, 300))] if second < 2 else []
        frame = frame_at(second)  # After the car has left, nothing moves.
        reports = passes.hold(frame) if second > 2.5 else passes.add(frame, plates, Stream())
        ends += [second for report in reports if report.event.type == "pass.ended"]
    assert len(ends) == 1 and 5.5 < ends[0] < 6.5
    assert passes.close() == []


def test_rare_frames_split_only_the_first_pass_until_their_interval_is_known(monkeypatch):
    passes, events = passes_of(), []
    for second in range(140):  # a frame every ten seconds, later one after more than a minute
        monkeypatch.setattr("time.monotonic", lambda now=second: 1000.0 + now)
        come = second in (0, 10, 20, 30, 100)
        reports = passes.add(frame_at(second), [seen(CAR, (400, 300))], Stream()) if come else []
        events += [(second, report.event.type) for report in reports + passes.advance()]
    assert events[:3] == [(0, "pass.updated"), (5, "pass.ended"), (10, "pass.updated")]
    assert [second for second, _ in events[3:]] == [71, 100, 120]


def two_similar_plates_side_by_side(second, _end=4):
    y, width = 200 + 60 * second, 80 + 15 * second
    # The detector returns them in any order.
    both = [seen(CAR, (400, y), width, 0.97), seen(ALIKE, (620, y), width, 0.97)]
    return both if round(second * 5) % 2 else both[::-1]


def two_cars_that_cross(second, _end=4):
    return [seen(CAR, (200 + 250 * second, 300)), seen(OTHER, (1100 - 250 * second, 330))]


def a_stationary_car_hidden_for_twelve_seconds(second, _end=24):
    return [] if 8 <= second < 20 else [seen(CAR, (500, 400))]


def a_car_that_follows_another_in_the_same_place(second, _end=6):
    return [] if 3 <= second < 4 else [seen(CAR if second < 3 else OTHER, (500, 400))]


def a_car_that_follows_another_and_is_unreadable_at_first(second, _end=9):
    text, way = (CAR, second) if second < 3 else (OTHER, second - 4)
    sure = 0.3 if way < 0.6 else 0.99995
    plate = seen(text, (600 + 15 * way, 200 + 110 * way), 60 + 35 * way, sure)
    return [plate] if 0 <= way < 3 else []


def a_car_that_turns_out_of_sight(second, _end=5):
    if second < 2:
        return [seen(CAR, (100 + 50 * second, 100), 60)]
    # When it reappears, it is unreadable at first.
    return [seen(CAR, (1200, 650), 60, 0.3 if second < 3.5 else 0.999)] if second > 3 else []


def a_car_hidden_for_two_seconds(second, _end=6):
    text = CAR[3:] if 4 <= second < 4.3 else CAR  # a part reappears first
    return [] if 2 <= second < 4 else [seen(text, (150 + 170 * second, 400))]


def a_fast_car_hidden_before_it_can_be_read(second, _end=6):
    x, (text, sure) = 40 + 850 * second, ("A11", 0.15) if second < 1 else (CAR, 0.999)
    return [] if 0.7 < second < 1.1 or x > 1240 else [seen(text, (x, 400), 70, sure)]


def a_car_that_stops_where_another_stood(second, _end=25):
    text = CAR if second < 8 else OTHER
    return [] if 8 <= second < 12 else [seen(text, (500, 400), sure=0.998)]


def plates_cut_by_the_pictures_edge(second, _end=5):
    x, edges = 400 + 250 * second, ((300, 704), (300, 16), (62, 400), (1218, 500))
    car = seen(CAR, (x, 300)) if x < 1210 else seen(CAR[:4], (610 + x / 2, 300), 80)
    return [] if x > 1300 else [car, *(seen(OTHER, middle) for middle in edges)]


def a_plate_detected_twice_in_a_frame(second, _end=4):
    x = 300 + 150 * second
    return [seen(CAR[:-1], (x + 5, 400), 110, 0.95), seen(CAR, (x, 400))]


def a_larger_sign_where_a_car_has_left(second, _end=14):
    sign = [seen("5", (450, 200), 370, 0.3)]
    car = [seen(CAR, (400 - 20 * (second % 10), 200), 70)] if second % 10 < 2 else []
    return car + (sign if second >= 3 else [])


def a_misreading_after_a_second_without_motion(second, _end=12):
    number = round(5 * second)
    return None if number % 6 else [seen([CAR, OTHER][number == 36], (400, 300), sure=0.99995)]


def cars_in_a_column_that_are_unreadable_at_first(second, _end=4):
    # Between two frames they move by more than half of their distance.
    cars = {text: x + 450 * second for text, x in ((CAR, 100), (OTHER, 240), ("K123KK77", 380))}
    sure = 0.3 if second < 1 else 0.999
    return [seen(text, (x, 300), 80, sure) for text, x in cars.items() if x < 1230]


def an_unreadable_car_while_one_leaves_and_another_comes(second, _end=6):
    leaving, coming = 900 + 170 * second, 50 * second - 5
    cars = [seen("A11B22", (600, 200 + 40 * second), 80, 0.3), seen(OTHER, (leaving, 500), 60)]
    return cars[: 1 + (leaving < 1230)] + [seen(CAR, (coming, 600), 60)] * (coming > 100)


def misreadings_after_a_gap_and_right_ones(second, _end=6):
    text = ALIKE if 3.5 <= second < 4.4 else CAR
    return [] if 1 <= second < 2.4 else [seen(text, (300, 300), sure=0.99)]


def a_car_that_takes_anothers_place_and_is_unclear_at_first(second, _end=12):
    number = round(5 * second)
    plate = seen(CAR if second < 4 else OTHER, (400, 300), sure=0.6 if number == 26 else 0.99)
    held = number > 26 and number % 6  # no motion
    return [] if 20 <= number < 26 else None if held else [plate]


def glimpses_of(*texts, sure=0.3):
    frames = [[seen(text, (600, 300), 100, sure)] for text in texts]
    return lambda second, _end=5: dict(enumerate(frames, 5)).get(round(5 * second), [])


@pytest.mark.parametrize(
    ("script", "passed"),
    [
        (lambda s, _end=16: [seen(CAR, (200 + 300 * (s % 10), 400))] * (s % 10 < 2), [CAR, CAR]),
        (two_similar_plates_side_by_side, [CAR, ALIKE]),
        (two_cars_that_cross, [OTHER, CAR]),
        (a_stationary_car_hidden_for_twelve_seconds, [CAR]),
        (a_car_that_follows_another_in_the_same_place, [OTHER, CAR]),
        (a_car_that_follows_another_and_is_unreadable_at_first, [OTHER, CAR]),
        (a_car_that_turns_out_of_sight, [CAR]),
        (a_car_hidden_for_two_seconds, [CAR]),
        (a_fast_car_hidden_before_it_can_be_read, [CAR]),
        (a_car_that_stops_where_another_stood, [OTHER, CAR]),
        (plates_cut_by_the_pictures_edge, [CAR]),
        (a_plate_detected_twice_in_a_frame, [CAR]),
        (a_misreading_after_a_second_without_motion, [CAR]),
        (a_larger_sign_where_a_car_has_left, [CAR, CAR]),
        # A single unreadable detection is reported if its letters and digits look like a plate's.
        *((glimpses_of("A11B22"), [""]), (glimpses_of("B22"), [])),
        *((glimpses_of("B22", "A11B22"), [""]), (glimpses_of(CAR, sure=0.999), [CAR])),
        (cars_in_a_column_that_are_unreadable_at_first, [OTHER, "K123KK77", CAR]),
        (an_unreadable_car_while_one_leaves_and_another_comes, [OTHER, CAR]),
        (misreadings_after_a_gap_and_right_ones, [CAR]),
        (a_car_that_takes_anothers_place_and_is_unclear_at_first, [OTHER, CAR]),
    ],
)
def test_each_vehicle_is_one_pass(script, passed):
    events = run(passes_of(), script)
    assert texts(events) == passed
    assert {e.text for e in events if e.type == "pass.updated"} >= {*filter(None, passed)}
    assert len({event.id for event in events}) == len(passed)


def test_two_frames_of_a_fast_car_are_one_pass_if_their_texts_agree():
    def script(second, _end=6):
        x = {25: 200, 26: 800}.get(round(25 * second))
        return [seen(CAR, (x, 300), sure=0.98)] if x else []

    [event] = ended(run(Passes("gate", READER), script, fps=25))
    assert event.evidence.frames_seen == 2 and event.candidates[0].text == CAR
    assert event.model == READER.model


def test_an_unreadable_plate_is_reported_if_it_moves_and_is_large_enough():
    def script(second, _end=4):
        unread = [seen("A11", (200 + 200 * second, 300), 100 if 1 < second < 3 else 55, 0.3)]
        sign = [seen("K77", (900, 100), 100, 0.3)]
        far = [seen("B22", (200 + 100 * second, 180), 50, 0.3)]
        return unread + sign + far

    [event] = ended(run(passes_of(), script))
    assert (event.text, event.readable, event.motion.direction) == ("", False, "right")
    # A parked unreadable plate is not reported either, with a frame every other second.
    parked = [seen("A11B22", (600, 300), 100, 0.3)]
    assert run(passes_of(), lambda _: parked, times=range(0, 60, 2)) == []


def test_a_pass_begins_at_its_first_detection_though_it_was_unreadable_then():
    def script(second, _end=9):
        text, sure = ("A11", 0.3) if second < 4 else (CAR, 0.91 if second < 4.1 else 0.999)
        near = seen(text, (300 if second < 1 else 400, 500), 120, sure)
        return [near, seen(CAR, (900, 200), 80, 0.91)] if 2 <= second < 3 else [near]

    [event] = ended(run(passes_of(zones=ZONES), script))
    assert (event.evidence.frames_seen, event.motion.zones) == (50, ["right", "left"])
    assert event.score > 0.9, "frames after the two were joined don't count"
    assert (event.text, event.time.position_s, event.motion.direction) == (CAR, 0, "unknown")
    assert event.time.first == frame_at(0).captured <= event.time.best


def test_a_car_parked_for_an_hour_is_one_pass_of_constant_memory():
    traced = []

    def script(second):
        traced.append(tracemalloc.get_traced_memory()[0])
        return None if second % 30 else [seen(CAR, (400, 300))]  # mostly no motion

    tracemalloc.start()
    events = run(passes_of(), script, times=range(3600))
    tracemalloc.stop()
    assert [event.type for event in events] == ["pass.updated", "pass.ended"]
    assert events[1].motion.stationary and events[1].time.last - events[1].time.first == 3599
    assert traced[-1] - traced[1] < 2_000_000, "a pass keeps no picture: it has 2.8 MB"
    plates = {0: [seen(CAR, (300, 300))], 1: [seen(CAR, (400, 300))]}  # then nothing moves
    assert run(passes_of(), plates.get, times=range(9))[-1].motion.stationary


def test_a_clock_that_jumps_neither_merges_nor_ends_nor_splits_passes():
    def script(second):
        return [seen(CAR if second < 1 else OTHER, (400, 300))]

    events = run(passes_of(), script, times=[0, 0.2, 0.4, 86_400, 86_400.2])
    assert texts(events) == sorted([CAR, OTHER])
    times = [0, 0.2, 0.1, 0.3, -86_400, -86_399.8, -86_399.6]
    [last] = ended(run(passes_of(), script, times=times))
    assert last.evidence.frames_seen == 7
    assert last.time.last - last.time.first == pytest.approx(0.7)


def test_a_pass_continues_when_the_clock_is_set_and_when_the_cameras_becomes_known(monkeypatch):
    """The camera's clock is a minute ahead; a car hidden at that moment is still one pass."""
    passes, plates, events = passes_of(), [seen(CAR, (400, 300))], []
    for second in (0, 0.2, 0.4, 0.6, 1.4, 1.6, 1.8):
        monkeypatch.setattr(time, "monotonic", lambda: 1000 + second)  # noqa: B023
        clock, ahead_s = ("rtcp", 604_860) if second > 1 else ("arrival", 604_800 * (second > 0.3))
        frame = replace(frame_at(second), clock=clock, captured=frame_at(second + ahead_s).captured)
        events += [report.event for report in passes.add(frame, plates, Stream())]
    [last] = ended([*events, *(report.event for report in passes.close())])
    assert last.evidence.frames_seen == 7 and last.time.source == "rtcp"
    assert last.time.first == pytest.approx(frame_at(604_860).captured, abs=1e-3)
    assert last.time.last - last.time.first == pytest.approx(1.8)


def test_passes_name_their_zones_and_those_outside_all_zones_are_left_out():
    def script(second, _end=3):
        unread = seen("A11B22", (300 + 100 * second, 100), sure=0.3)
        car, other = (900 - 200 * second, 600), (1000, 300 + 10 * second)
        return [seen(CAR, car), seen(OTHER, other), unread]

    [event] = ended(run(passes_of(zones=ZONES), script))
    assert (event.text, event.motion.zones) == (CAR, ["right", "left"])


def test_a_listed_plate_is_matched_by_its_probability_not_by_its_spelling(tmp_path):
    for name, listed in (("blocked", OTHER), ("residents", f"{CAR}\nA001AA77\n")):
        (tmp_path / name).write_text(listed)
    lists = [PlateList(name, tmp_path / name) for name in ("blocked", "residents")]

    def events_of(text, sure_at=lambda _: 0.999):
        def script(second, _end=2):
            return [seen(text, (400 + 50 * second, 300), sure=sure_at(second))]

        return run(passes_of(lists=lists), script)

    [match] = [event.match for event in ended(events_of(CAR))]
    assert (match.list, match.text) == ("residents", CAR) and match.probability > 0.9
    # A gate may open from some probability on, so that updates report a higher one.
    events = events_of(CAR, lambda second: 0.99 if second < 1 else 0.9999)
    reported = [e.match.probability for e in events if e.match and e.type == "pass.updated"]
    assert len(reported) > 1 and np.diff(reported).min() > 0.009, "each frame must not report"
    # A sure text that differs in one character from a listed one is another plate.
    assert [event.match for event in ended(events_of(ALIKE))] == [None]


def test_a_pass_reports_frames_dropped_and_reconnects_during_it():
    passes = passes_of()
    for number, (dropped, sure) in enumerate(((7, 0.99), (8, 0.999), (10, 0.99))):
        plates = [replace(seen(CAR, (400, 300), sure=sure), crop=np.full((48, 188, 3), number))]
        passes.add(frame_at(number / 5), plates, Stream(frames_dropped=dropped, reconnects=1))
    [report] = passes.close()
    assert report.event.time.best == frame_at(0.2).captured and report.crop.max() == 1
    assert (report.event.stream.frames_dropped, report.event.stream.reconnects) == (3, 0)
