"""Labelled photos: tables, boxes of turned photos, and the splits."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from plate_models.images import decode
from plate_models.training.labels import LabelError, load_labels, load_negatives


def write_labels(folder: Path, row: str, head: str = "image,x0,y0,x1,y1,text,lines") -> None:
    (folder / "images").mkdir(exist_ok=True)
    (folder / "plates.csv").write_text(f"{head}\n{row}\n")


def test_labels_are_read_and_missing_photos_are_named(tmp_path: Path) -> None:
    write_labels(tmp_path, "b.jpg,1,2,3,4,A111AA77,1,dark", "image,x0,y0,x1,y1,text,legible,light")
    with pytest.raises(FileNotFoundError, match=r"b\.jpg"):
        load_labels(tmp_path)
    (tmp_path / "images" / "b.jpg").touch()
    (photo,) = load_labels(tmp_path)
    (label,) = photo.plates
    assert label.box == (1, 2, 3, 4) and label.legible and label.light == "dark"
    assert label.lines == 1


def test_labels_know_two_lines_and_refuse_three(tmp_path: Path) -> None:
    write_labels(tmp_path, "b.jpg,1,2,3,4,A111AA77,2")
    (tmp_path / "images" / "b.jpg").touch()
    assert load_labels(tmp_path)[0].plates[0].lines == 2
    write_labels(tmp_path, "b.jpg,1,2,3,4,A111AA77,3")
    with pytest.raises(LabelError, match=r"plates\.csv, line 2: lines: expected 1 or 2, got '3'"):
        load_labels(tmp_path)


@pytest.mark.parametrize("row", ["b.jpg,1,2,3", "b.jpg,1,2,3,wide"])
def test_broken_labels_are_named_with_their_line(tmp_path: Path, row: str) -> None:
    write_labels(tmp_path, row)
    with pytest.raises(LabelError, match=r"plates\.csv, line 2: "):
        load_labels(tmp_path)


def test_a_table_without_boxes_is_refused(tmp_path: Path) -> None:
    write_labels(tmp_path, "b.jpg,1", "image,x0")
    with pytest.raises(LabelError, match=r"line 2: no column 'y0'"):
        load_labels(tmp_path)


def test_negatives_are_split_in_two_without_overlap(tmp_path: Path) -> None:
    for index in range(30):
        (tmp_path / f"{index}.jpg").touch()
    held_out = {photo.path for photo in load_negatives(tmp_path, held_out=True)}
    trained = {photo.path for photo in load_negatives(tmp_path, held_out=False)}
    assert len(held_out) > 5 and len(trained) > 5
    assert not held_out & trained and len(held_out | trained) == 30


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_are_turned_as_their_photo_is(tmp_path: Path, orientation: int) -> None:
    """Boxes are of the image as stored; what is decoded, trained on and scored is upright."""
    pixels = np.zeros((60, 100, 3), np.uint8)
    pixels[10:30, 15:80] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    write_labels(tmp_path, "b.png,15,10,80,30,A111AA77,1")
    Image.fromarray(pixels).save(tmp_path / "images" / "b.png", exif=exif)
    (photo,) = load_labels(tmp_path)
    upright = decode(photo.path.read_bytes())
    rows, columns = np.nonzero(upright[..., 0])
    drawn = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert photo.plates[0].box == drawn
