"""The store of events and deliveries, and its outbox, on SQLite and on a real PostgreSQL."""

import json
import os
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Barrier

import psutil
import pytest
import sqlalchemy as sa
from camera_events import a_pass, search, store_of
from support import wait_until

from plates.benchmarks.cameras import free_port
from plates.cameras.store import Outbox, StoreUnavailable

POSTGRES = Path("/usr/lib/postgresql/15/bin")


class Postgres:
    """A PostgreSQL server that the tests start and stop."""

    def __init__(self, folder):
        self.port = free_port()
        self.data = Path(folder, "data")
        self.account = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root.
            self.account = {"user": "postgres", "group": "postgres", "extra_groups": []}
            shutil.chown(folder, "postgres")
        # As with LANG=C: the server takes any bytes, but clients must send nothing but ASCII.
        options = "-A", "trust", "-U", "plates", "--no-sync", "-E", "SQL_ASCII", "--locale=C"
        self("initdb", "-D", self.data, *options)
        self.start()

    def __call__(self, program, *words):
        command = [POSTGRES / program, *map(str, words)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, check=True, cwd="/", timeout=60, **quiet, **self.account)

    def start(self):
        options = f"-p {self.port} -h 127.0.0.1 -k '' -F"
        self("pg_ctl", "-D", self.data, "-w", "-l", self.data / "log", "-o", options, "start")

    def stop(self):
        self("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")

    def new_database(self):
        """Create a database; returns its URL."""
        name = f"db{time.time_ns()}"
        self("createdb", "-h", "127.0.0.1", "-p", self.port, "-U", "plates", name)
        return f"postgresql://plates@127.0.0.1:{self.port}/{name}"


@pytest.fixture(scope="module")
def postgres():
    if not (POSTGRES / "initdb").exists():
        pytest.skip(f"no PostgreSQL in {POSTGRES}")
    with tempfile.TemporaryDirectory(prefix="plates-pg-", ignore_cleanup_errors=True) as folder:
        server = Postgres(folder)
        yield server
        server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def open_store(request, tmp_path):
    sqlite = request.param == "sqlite"
    place = tmp_path if sqlite else request.getfixturevalue("postgres").new_database()
    with ExitStack() as stores:
        yield lambda **changes: stores.enter_context(closing(store_of(place, **changes)))


@pytest.fixture
def store(open_store):
    return open_store()


def kinds(stored):
    return ["updated" if "pass.updated" in payload else "ended" for _, payload in stored]


def test_an_event_is_written_once_and_a_pass_ends_once(store):
    assert store.add(a_pass(kind="updated"), None, ["a"])
    assert store.add(a_pass(revision=2), b"jpeg", ["a", "b"])
    assert not store.add(a_pass(kind="updated"), None, ["a"])
    assert not store.add(a_pass(revision=2), b"jpeg", ["a", "b"])
    assert not store.add(a_pass(revision=3), None, ["a"])
    events = store.events_after(0)
    assert kinds(events) == ["updated", "ended"]
    assert store.events_after(events[0][0]) == events[1:]
    assert [delivery.picture for delivery in store.due("a", 0)] == [None, b"jpeg"]
    assert len(store.due("b", 0)) == 1


def test_a_store_adds_missing_indexes_and_missing_tables(open_store, store):
    store.add(a_pass(1), None, [])
    with store._engine.begin() as connection:
        connection.execute(sa.text("DROP INDEX events_created"))
    (reader := open_store()).add(a_pass(2), None, [])
    assert "events_created" in [i["name"] for i in sa.inspect(store._engine).get_indexes("events")]
    Path(store._engine.url.database).unlink(missing_ok=True)
    with store._engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS events"))
    with pytest.raises(StoreUnavailable):
        store.add(a_pass(3), None, [])
    assert store.add(a_pass(4), None, []) and len(search(reader)) == 1


def test_search_finds_texts_by_part_and_by_wildcards(store):
    for number, plate in ((1, "X556XM750"), (2, "X1A50"), (3, "AB123")):
        store.add(a_pass(number, text=plate), None, [])
    found = {"": [3, 2, 1], "6xm7": [1], "х 556": [1], "X5*M?50": [1], "X5*M?5": [], "*50": [2, 1]}
    nothing = {text: [] for text in ("%", "A_1*", "!", "[A]*", "Ж", "\ufffd*")}
    for text, expected in (found | nothing).items():
        assert [seq for seq, _ in search(store, text=text)] == expected, text


def test_search_by_camera_and_time_returns_the_last_revision_of_each_pass(store):
    for revision in (1, 2):
        store.add(a_pass(1, "updated", revision), None, [])
    store.add(a_pass(2, camera="gate-2"), None, [])
    store.add(a_pass(3), None, [])
    third = datetime.fromtimestamp(a_pass(3).time.first, UTC)
    assert [seq for seq, _ in search(store)] == [4, 3, 2]
    assert [seq for seq, _ in search(store, camera="gate-2")] == [3]
    assert [seq for seq, _ in search(store, since=third)] == [4]
    assert [seq for seq, _ in search(store, until=third)] == [3, 2]
    assert [seq for seq, _ in search(store, limit=1, before=4)] == [3]
    assert store.running() == store.running("gate-1") == [a_pass(1, "updated", 2)]
    assert not store.running("gate-2")


def test_failed_deliveries_are_retried_for_a_day_and_after_the_clock_is_set_back(store):
    store.add(a_pass(), None, ["a", "b"])
    begin = now = time.time()
    while store.failed(store.due("a", now)[0], now):
        assert not store.due("a", now + 1.9)
        now = next(now + later for later in (3, 60, 601) if store.due("a", now + later))
    assert 23 * 3600 < now - begin < 30 * 3600
    assert not store.due("a", now + 3600)
    in_2040, today = 2.2e9, 1.77e9  # then the clock is set right
    store.failed(store.due("b", begin)[0], in_2040)
    assert not store.due("b", in_2040)
    store.purge(today, ["b"])
    assert store.due("b", today)


def test_waiting_deliveries_are_due_as_soon_as_their_target_is_back(open_store):
    store, now = open_store(), time.time()
    for number in (1, 2, 3):
        store.add(a_pass(number), None, ["a", "b"])
    first, refused, last = store.due("a", now)
    for delivery in (first, refused, last, *store.due("b", now)):
        store.failed(delivery, now)
    for attempt in range(100):  # The target refuses this event only.
        store.failed(refused._replace(attempts=attempt), now)
    assert not store.due("a", now)
    store.delivered(first._replace(attempts=1))
    store.add(a_pass(4), None, ["a"])  # A new event may open a gate: it comes first.
    assert [each.seq - last.seq for each in store.due("a", now)] == [1, 0]
    assert not store.due("b", now)


def test_passes_that_are_not_kept_are_deleted_after_their_delivery(open_store, monkeypatch):
    store = open_store(texts=False, pictures=False)
    store.add(a_pass(1, "updated"), None, [])
    store.add(a_pass(1, "ended", 2), b"jpeg", ["a", "gone"])
    store.add(a_pass(2, "updated"), None, [])
    now = time.time()
    for _ in range(2):
        store.purge(now + 61, ["a"])
    assert kinds(search(store)) == ["updated", "ended"]
    assert store.due("a", now)[0].picture == b"jpeg"
    assert not store.due("gone", now)
    store.delivered(store.due("a", now)[0])
    store.purge(now + 5, ["a"])
    assert kinds(search(store)) == ["updated", "ended"], "a live listener may still need it"
    store.purge(now + 61, ["a"])
    store.purge(now + 61, ["a"])
    # The running pass is kept, so that it can end after a crash.
    assert store.running() == [a_pass(2, "updated")]
    assert kinds(search(store)) == ["updated"]
    store = open_store(days=30)
    store.purge(now + 29.9 * 86_400, [])
    assert search(store)
    store.add(a_pass(5), None, [])
    monkeypatch.setattr("plates.cameras.store._PURGED_AT_ONCE", 1)  # so that others can write
    last = store.last_seq()
    for left in (1, 0):
        store.purge(now + 30.1 * 86_400, [])
        assert len(search(store)) == left
    store.add(a_pass(3), None, [])  # Numbers aren't reused: clients resume at the last.
    assert store.last_seq() > last


def test_a_pass_whose_end_was_deleted_is_not_running_again(open_store):
    store = open_store(texts=False)
    store.add(a_pass(1, "updated"), None, ["a"])
    store.add(a_pass(1, "ended", 2), None, [])
    store.purge(time.time() + 61, ["a"])
    assert not store.running()


def test_several_stores_open_a_new_database_at_once_and_lose_nothing(open_store):
    barrier = Barrier(4)

    def write(store):
        barrier.wait()
        return [store.add(a_pass(number), None, ["a"]) for number in range(20)]

    with ThreadPoolExecutor(4) as pool:
        written = pool.map(write, [open_store() for _ in range(4)])
        assert [sum(each) for each in zip(*written, strict=True)] == 20 * [1]
        # Writes wait for each other: no lower number appears after a higher one was read.
        one, other = open_store(), open_store()
        assert one.last_seq() == other.last_seq()
        with one._transaction(write=True):
            late = pool.submit(other.add, a_pass(99), None, [])
            with pytest.raises(TimeoutError):
                late.result(0.5)
        assert late.result(20)


def test_events_wait_while_the_database_is_away(postgres, caplog):
    store = store_of(postgres.new_database())
    assert store.add(a_pass(1), None, ["a"])
    outbox = Outbox()
    postgres.stop()
    try:
        with pytest.raises(StoreUnavailable):
            search(store)
        outbox.put(lambda: 1 / 0)  # This unwritable event doesn't delay the ones after it.
        for number in range(2, 6):
            outbox.put(partial(store.add, a_pass(number), None, ["a"]))
        assert not outbox.close(timeout_s=0.1)
    finally:
        postgres.start()
    assert outbox.close()
    postgres.stop()
    postgres.start()  # Connections from before are replaced without an error.
    found = [json.loads(payload)["id"] for _, payload in store.events_after(0)]
    assert found == [f"0199-{number}" for number in range(1, 6)] and "Exception" not in caplog.text
    store.close()


@pytest.mark.parametrize("login", ["stranger:secret", "stranger"])
def test_postgresql_says_why_it_refuses_and_the_log_says_it_once(postgres, login, caplog):
    rules = postgres.data / "pg_hba.conf"
    rules.write_text(f"host all stranger all scram-sha-256\n{rules.read_text()}")
    postgres("pg_ctl", "-D", postgres.data, "reload")
    store = store_of(postgres.new_database().replace("plates", login))
    reason = r'^password [a-z ]+ failed for user "stranger"$'
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=reason):
            store.last_seq()
    assert caplog.text.count('failed for user "stranger"') == 1


def test_events_wait_while_the_database_hangs(postgres, caplog, monkeypatch):
    monkeypatch.setattr("plates.cameras.store._BUSY_S", 3)
    store, outbox = store_of(url := postgres.new_database()), Outbox()
    assert store.add(a_pass(1), None, ["a"])
    server = psutil.Process(int((postgres.data / "postmaster.pid").read_text().split()[0]))
    processes = [server, *server.children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        outbox.put(partial(store.add, a_pass(2), None, ["a"]))
        wait_until(lambda: "database is unavailable" in caplog.text)
    finally:
        for process in processes:
            process.resume()
    assert outbox.close()
    # Another writer, whose network fails during its transaction, stops the others only so long.
    other = store_of(url)
    with pytest.raises(StoreUnavailable), other._transaction(write=True):
        (outbox := Outbox()).put(partial(store.add, a_pass(3), None, ["a"]))
        assert outbox.close()
    other.close()
    assert len(store.events_after(0)) == 3
    store.close()
