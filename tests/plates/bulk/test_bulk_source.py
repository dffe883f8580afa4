"""Sources of photos: folders, archives and the web; photos and folders that can't be reached."""

import functools
import os
import tarfile
import zipfile
from collections import Counter
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar
from unittest.mock import Mock, call

import pytest
from bulk_cases import archive, jpeg
from small_server import QuietHandler, SmallServer
from support import write_files

from plate_models.spec import Limits
from plates.bulk import BulkError, source
from plates.bulk.source import Failure, Fetcher, Photo, describe, find_photos, has_photo_suffix
from plates.file_kinds import HEAD_BYTES


def names(source):
    return sorted(found.name for found in find_photos(str(source)) if isinstance(found, Photo))


def test_a_source_is_a_folder_a_photo_or_a_pattern(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_FIRST_PAUSE_S", 0.01)
    folder = archive(tmp_path / "gate [2]", 4)
    photos = sorted(map(str, folder.rglob("*.jpg")))
    assert names(photos[0]) == photos[:1]
    assert names(tmp_path / "gate*" / "*" / "00[03].jpg") == [photos[0], photos[3]]
    write_files(folder, {"notes.txt": b"", ".cache/preview.png": b""})
    assert names(tmp_path / "**" / "*.png") == []
    (folder / "folder.jpg").mkdir()
    os.mkfifo(folder / "pipe.jpg")  # to open it would block for ever
    (folder / "day0" / "round").symlink_to(folder)
    (folder / "link.jpg").symlink_to(photos[0])
    (folder / os.fsdecode(b"\xff::.JPG")).write_bytes(jpeg(5))  # a name that is not UTF-8
    assert names(folder) == sorted([*photos, f"{folder}/link.jpg", f"{folder}/\\xff::.JPG"])
    fetcher, pictures = Fetcher(str(folder)), [jpeg(5), Path(photos[0]).read_bytes()]
    odd = [photo for photo in find_photos(str(folder)) if photo.name not in photos]
    assert sorted(map(fetcher.fetch, odd)) == sorted(pictures)
    for link, target, reason in (("c", "c.jpg", "Too many levels"), ("g", "gone", "No such file")):
        (folder / f"{link}.jpg").symlink_to(target)  # reading it fails, with the reason
        assert f"{folder}/{link}.jpg" in names(folder)
        with pytest.raises(OSError, match=reason):
            fetcher.fetch(next(find_photos(f"{tmp_path}/gate*/{link}*")))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("/nowhere/at/all", "No such file or directory"),
        ("nonsense://bucket/photos", "nonsense"),
        ("s3://bucket/photos", "s3fs"),
        ("zip://::/nowhere.zip", "not there"),
    ],
)
def test_an_error_says_why_a_source_cannot_be_opened(source, said):
    with pytest.raises(BulkError, match=said):
        list(find_photos(source))


def test_zip_and_tar_files_are_sources(tmp_path):
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as file:
        for name, shade in (("a/1.jpg", 5), ("a/b/2.jpg", 15), ("a/readme.txt", 5)):
            file.writestr(name, jpeg(shade))
    source, first = f"zip://::{path}", f"zip://a/1.jpg::{path}"
    found = {photo.name: Fetcher(source).fetch(photo) for photo in find_photos(source)}
    assert found == {first: jpeg(5), f"zip://a/b/2.jpg::{path}": jpeg(15)}
    assert all(map(has_photo_suffix, found))
    assert names(f"zip://a/*.jpg::{path}") == [first]
    write_files(tmp_path, {"sub/3.jpg": jpeg(25)})
    path = tmp_path / "photos.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(tmp_path / "sub", ".", filter=lambda info: info.replace(mtime=2**60, deep=False))
    assert names(f"tar://::{path}") == [f"tar://./3.jpg::{path}"]


class WebPage(QuietHandler, SimpleHTTPRequestHandler):
    """A folder on the web: some paths are forbidden, some are down, some fail twice, then work."""

    requests: ClassVar[Counter[str]] = Counter()

    def do_GET(self):
        self.requests[self.path] += 1
        if "forbidden" in self.path:
            self.send_error(403)
        elif "down" in self.path or ("shaky" in self.path and self.requests[self.path] < 3):
            self.send_error(503)
        else:
            super().do_GET()


def test_a_folder_on_the_web_is_a_source(tmp_path, monkeypatch):
    photos = {"good.jpg", "shaky.jpg", "forbidden.jpg", "down.jpg", "sub/deep", "sub/a.HEIC"}
    others = ("about.html", "table.csv", ".hidden", "linked/1")
    links = ["?C=N;O=D", "mailto:a@b.example", "javascript:x()", "#top", "/", "1", "1#large"]
    page = "".join(f'<a href="{link}">x</a>' for link in links)
    pages = {"linked/index.html": page.encode(), "forbidden/1.jpg": b""}
    write_files(tmp_path, dict.fromkeys((*photos, *others), jpeg(5)) | pages)
    pauses = []
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=pauses.append))
    large = os.urandom(3_000_000)
    with SmallServer(functools.partial(WebPage, directory=str(tmp_path))) as server:
        url = f"{server.url}/"
        found = {p.name.removeprefix(url): p for p in find_photos(url) if isinstance(p, Photo)}
        assert set(found) == {*photos, "linked/1"}
        assert has_photo_suffix(f"{url}good.jpg?size=1")
        [unlisted] = [each for each in find_photos(url) if isinstance(each, Failure)]
        assert (unlisted.photo, unlisted.reason) == (f"{url}forbidden/", "forbidden")
        fetcher = Fetcher(url)
        assert fetcher.fetch(found["good.jpg"]) == jpeg(5) and not pauses
        assert fetcher.fetch(found["shaky.jpg"]) == jpeg(5) and len(pauses) == 2
        for name, reason, tries in (("forbidden", "forbidden", 1), ("down", "unreachable", 4)):
            with pytest.raises(Exception, match=r"403|503") as refused:
                fetcher.fetch(found[f"{name}.jpg"])
            assert (describe(refused.value)[0], WebPage.requests[f"/{name}.jpg"]) == (reason, tries)
        (tmp_path / "good.jpg").unlink()
        with pytest.raises(FileNotFoundError):
            fetcher.fetch(found["good.jpg"])
        (tmp_path / "sub" / "deep").write_bytes(large)
        assert fetcher.fetch(found["sub/deep"]) == large
        # A server may not report the size of a file: at most one byte beyond the limit is read.
        monkeypatch.setattr(source, "LIMITS", Limits(max_bytes=1_000_000))
        assert fetcher.fetch(found["sub/deep"]) == large[:1_000_001]
        for place, said in (("forbidden/", "not allowed"), ("nowhere/", "not there")):
            with pytest.raises(BulkError, match=said):
                list(find_photos(url + place))
    with pytest.raises(OSError) as refused:
        fetcher.fetch(found["good.jpg"])
    assert describe(refused.value)[0] == "unreachable"


def test_only_the_head_of_a_file_that_is_too_large_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "LIMITS", Limits(max_bytes=2000))
    (tmp_path / "a.jpg").write_bytes(bytes(3000))
    (photo,) = find_photos(str(tmp_path))
    assert len(Fetcher(str(tmp_path)).fetch(photo)) == HEAD_BYTES


def test_keys_of_s3_with_two_slashes_are_listed_and_removed_keys_are_missing():
    folder, photo = {"name": "b/a/", "type": "directory"}, {"name": "b/a//1.jpg", "type": "file"}
    s3 = SimpleNamespace(ls=lambda *_, **__: [folder], find=lambda *_, **__: {"": photo})
    assert list(source._walk(s3, "b/a")) == [photo]
    gone = FileNotFoundError("The specified key does not exist.")
    gone.__cause__ = ValueError()  # in place of botocore's error
    assert describe(gone)[0] == "missing"


def test_a_lost_ssh_connection_is_made_again(monkeypatch):
    storage = Mock(**{"cat_file.side_effect": [b"1", OSError("Socket is closed"), b"2"]})
    monkeypatch.setattr(source, "url_to_fs", Mock(return_value=(storage, "/gate")))
    fetcher = Fetcher("sftp://host/gate")
    assert fetcher.fetch(Photo(b"sftp:///1.jpg")) + fetcher.fetch(Photo(b"sftp:///2?.jpg")) == b"12"
    assert storage.cat_file.call_args.args == ("/2?.jpg",)
    assert source.url_to_fs.mock_calls == [call("sftp://host/gate", skip_instance_cache=True)] * 2
