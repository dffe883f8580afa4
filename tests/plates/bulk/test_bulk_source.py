"""Where an archive's photos come from, and what becomes of those that can't be reached."""

import errno
import functools
import http.server
import os
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from bulk_cases import archive, jpeg
from fsspec.implementations.memory import MemoryFileSystem

from plate_models.images.files import HEAD_BYTES
from plate_models.spec import Limits
from plates.bulk import BulkError, require
from plates.bulk.listing import load_listing, take_listing
from plates.bulk.source import Failure, Fetcher, Photo, describe, find_photos


def names(source: Path | str) -> list[str]:
    return sorted(found.name for found in find_photos(str(source)) if isinstance(found, Photo))


def problems(source: Path | str) -> list[Failure]:
    return [found for found in find_photos(str(source)) if isinstance(found, Failure)]


def test_a_folder_is_searched_for_photos(tmp_path: Path) -> None:
    archive(tmp_path, 4)
    (tmp_path / "notes.txt").write_bytes(b"")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "preview.png").write_bytes(b"")
    (tmp_path / "CAMERA.JPG").write_bytes(b"")
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")  # would keep its reader waiting for ever
    (tmp_path / "day0" / "round").symlink_to(tmp_path)
    expected = [*(path for path in tmp_path.rglob("*.jpg") if path.is_file()), "CAMERA.JPG"]
    assert names(tmp_path) == sorted(str(tmp_path / path) for path in expected)
    assert len(expected) == 5


def test_a_photo_and_a_pattern_are_sources(tmp_path: Path) -> None:
    archive(tmp_path, 4)
    one = tmp_path / "day0" / "000.jpg"
    assert names(one) == [str(one)]
    assert names(tmp_path / "*" / "00[13].jpg") == [
        str(tmp_path / "day1" / name) for name in ("001.jpg", "003.jpg")
    ]


def test_names_that_are_no_text_are_read_all_the_same(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.jpg")).write_bytes(jpeg(5))
    (photo,) = find_photos(str(tmp_path))
    assert isinstance(photo, Photo)
    assert photo.name == f"{tmp_path}/\\xff.jpg"
    assert Fetcher(str(tmp_path)).fetch(photo) == jpeg(5)


def test_a_folder_that_may_not_be_read_is_named_and_the_others_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(tmp_path, 4)
    scan = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("day0"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    assert len(names(tmp_path)) == 2
    (problem,) = problems(tmp_path)
    assert (problem.photo, problem.reason) == (str(tmp_path / "day0"), "forbidden")
    with pytest.raises(BulkError, match="not allowed: Permission denied"):
        list(find_photos(str(tmp_path / "day0")))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("/nowhere/at/all", "no such file or folder"),
        ("nonsense://bucket/photos", "nonsense"),
        ("s3://bucket/photos", "s3fs"),
        ("zip://::/nowhere.zip", "not there"),
    ],
)
def test_a_source_that_cannot_be_opened_says_why(source: str, said: str) -> None:
    with pytest.raises(BulkError, match=said):
        list(find_photos(source))


def test_a_missing_package_is_named() -> None:
    with pytest.raises(BulkError, match=r"nothing_of_that_name.*pip install -r"):
        require("nothing_of_that_name")


def test_a_zip_file_is_a_source(tmp_path: Path) -> None:
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a/1.jpg", jpeg(5))
        file.writestr("a/b/2.jpg", jpeg(15))
        file.writestr("a/readme.txt", "no photo")
    source = f"zip://::{path}"
    assert names(source) == [f"zip://a/1.jpg::{path}", f"zip://a/b/2.jpg::{path}"]
    assert names(f"zip://a/*.jpg::{path}") == [f"zip://a/1.jpg::{path}"]
    fetcher = Fetcher(source)
    found = {p.name: fetcher.fetch(p) for p in find_photos(source) if isinstance(p, Photo)}
    assert found[f"zip://a/b/2.jpg::{path}"] == jpeg(15)


class Shelf(http.server.SimpleHTTPRequestHandler):
    """A folder on the web; some of it is forbidden, some fails, some only at first."""

    asked: Counter[str]

    def do_GET(self) -> None:
        self.asked[self.path] += 1
        if "forbidden" in self.path:
            self.send_error(403)
        elif "down" in self.path or ("shaky" in self.path and self.asked[self.path] < 3):
            self.send_error(503)
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[tuple[str, Path, Counter[str]]]:
    """URL and folder of a web server, and what it was asked for."""
    folder = tmp_path / "web"
    folder.mkdir()
    asked: Counter[str] = Counter()
    handler = type("Handler", (Shelf,), {"asked": asked})
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/", folder, asked
    server.shutdown()
    server.server_close()


def test_the_web_is_a_source(shelf: tuple[str, Path, Counter[str]]) -> None:
    url, folder, asked = shelf
    for name in ("good.jpg", "shaky.jpg", "forbidden.jpg", "down.jpg", "sub/deep.jpg"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(jpeg(5))
    (folder / "forbidden").mkdir()
    photos = {p.name.removeprefix(url): p for p in find_photos(url) if isinstance(p, Photo)}
    assert set(photos) == {"good.jpg", "shaky.jpg", "forbidden.jpg", "down.jpg", "sub/deep.jpg"}
    (problem,) = problems(url)
    assert (problem.photo, problem.reason) == (f"{url}forbidden/", "forbidden")
    pauses: list[float] = []
    fetcher = Fetcher(url, sleep=pauses.append)
    assert fetcher.fetch(photos["good.jpg"]) == jpeg(5)
    assert not pauses
    assert fetcher.fetch(photos["shaky.jpg"]) == jpeg(5)
    assert len(pauses) == 2
    with pytest.raises(Exception, match="403") as refused:
        fetcher.fetch(photos["forbidden.jpg"])
    assert describe(refused.value)[0] == "forbidden"
    assert asked["/forbidden.jpg"] == 1
    with pytest.raises(Exception, match="503") as refused:
        fetcher.fetch(photos["down.jpg"])
    assert describe(refused.value)[0] == "unreachable"
    assert asked["/down.jpg"] == 4
    (folder / "good.jpg").unlink()
    with pytest.raises(FileNotFoundError):
        fetcher.fetch(photos["good.jpg"])
    large = os.urandom(3_000_000)
    (folder / "sub" / "deep.jpg").write_bytes(large)
    assert fetcher.fetch(photos["sub/deep.jpg"]) == large
    limited = Fetcher(url, Limits(max_bytes=1_000_000))
    assert limited.fetch(photos["sub/deep.jpg"]) == large[:1_000_001]


def test_pages_are_no_photos_and_photos_need_no_extension(
    shelf: tuple[str, Path, Counter[str]],
) -> None:
    url, folder, _ = shelf
    for name in ("photo", "phone.HEIC", "about.html", "table.csv", ".hidden"):
        (folder / name).write_bytes(jpeg(5))
    assert names(url) == [f"{url}phone.HEIC", f"{url}photo"]
    links = ["?C=N;O=D", "mailto:a@b.example", "javascript:x()", "#top", "/", "photo"]
    page = "".join(f'<a href="{link}">x</a>' for link in links)
    (folder / "index.html").write_text(page)
    assert names(url) == [f"{url}photo"]


def test_a_website_that_refuses_is_named(shelf: tuple[str, Path, Counter[str]]) -> None:
    url, _, _ = shelf
    with pytest.raises(BulkError, match="not allowed"):
        list(find_photos(url + "forbidden/"))
    with pytest.raises(BulkError, match="not there"):
        list(find_photos(url + "nowhere/"))


def test_a_server_that_stays_away_is_not_waited_for_each_time(tmp_path: Path) -> None:
    pauses: list[float] = []
    with_nobody = "http://127.0.0.1:9/"  # the discard port: nothing listens there
    fetcher = Fetcher(with_nobody, sleep=pauses.append)
    for _ in range(10):
        with pytest.raises(OSError) as refused:
            fetcher.fetch(Photo(os.fsencode(f"{with_nobody}a.jpg")))
        assert describe(refused.value)[0] == "unreachable"
    assert len(pauses) == 9  # three photos, three pauses each


def test_photos_are_read_ahead_in_order(tmp_path: Path) -> None:
    archive(tmp_path, 20)
    photos = [Photo(os.fsencode(name)) for name in names(tmp_path)]
    order = []
    for index, fetched in Fetcher(str(tmp_path)).fetch_ahead(photos):
        assert fetched.result() == Path(photos[index].name).read_bytes()
        order.append(index)
    assert order == list(range(20))


class Sizeless(MemoryFileSystem):
    """A storage that doesn't say how large its files are."""

    protocol = "sizeless"
    store: ClassVar = {}
    read: ClassVar[list[int]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("sizeless://"))

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:
        found = super().ls(path, detail=True)
        return [info | {"size": None} if detail else info["name"] for info in found]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        data = super().cat_file(path, start, end)
        self.read.append(len(data))
        return data


def test_no_more_than_the_limit_is_read_of_large_files(tmp_path: Path) -> None:
    limits = Limits(max_bytes=2000)
    path = tmp_path / "a.jpg"
    path.write_bytes(bytes(3000))
    (photo,) = find_photos(str(tmp_path))
    assert len(Fetcher(str(tmp_path), limits).fetch(photo)) == HEAD_BYTES
    fsspec.register_implementation("sizeless", Sizeless, clobber=True)
    Sizeless().pipe_file("/photos/a.jpg", bytes(3000))
    (photo,) = find_photos("sizeless://photos")
    assert photo.size is None
    assert len(Fetcher("sizeless://photos", limits).fetch(photo)) == 2001
    assert Sizeless.read == [2001]


@pytest.mark.parametrize("photos", [1, 4, 5, 30])
def test_a_listing_is_cut_into_chunks_that_are_found_again(tmp_path: Path, photos: int) -> None:
    source, folder = archive(tmp_path / "photos", photos), tmp_path / "listing"
    folder.mkdir()
    taken = take_listing(folder, find_photos(str(source)), 4)
    assert (taken.photos, taken.chunks) == (photos, -(-photos // 4))
    again = load_listing(folder)
    assert again == taken
    chunks = [again.chunk(number) for number in range(again.chunks)]
    assert [len(chunk) for chunk in chunks[:-1]] == [4] * (again.chunks - 1)
    found = [photo.name for chunk in chunks for photo in chunk]
    assert len(found) == photos
    assert sorted(found) == names(source)


def test_an_unfinished_listing_is_taken_anew(tmp_path: Path) -> None:
    source, folder = archive(tmp_path / "photos", 6), tmp_path / "listing"
    folder.mkdir()

    def cut_off() -> Iterator[Photo | Failure]:
        yield from find_photos(str(source))
        raise BulkError("the server went away")

    (folder / "part-00000099.parquet").write_bytes(b"of a listing that was killed")
    with pytest.raises(BulkError, match="went away"):
        take_listing(folder, cut_off(), 2)
    assert load_listing(folder) is None
    assert take_listing(folder, find_photos(str(source)), 2).photos == 6
    assert not (folder / "part-00000099.parquet").exists()


def test_new_photos_make_new_chunks(tmp_path: Path) -> None:
    source, folder = archive(tmp_path / "photos", 6), tmp_path / "listing"
    folder.mkdir()
    before = take_listing(folder, find_photos(str(source)), 4)
    archive(source, 9)
    after = take_listing(folder, find_photos(str(source)), 4, before)
    assert after.parts[: len(before.parts)] == before.parts
    assert (after.photos, after.chunks) == (9, 3)
    assert [photo.name for photo in after.chunk(0)] == [photo.name for photo in before.chunk(0)]
    found = [photo.name for number in range(3) for photo in after.chunk(number)]
    assert sorted(found) == names(source)
    assert take_listing(folder, find_photos(str(source)), 4, after).photos == 9
