"""Labelled photos: their tables, boxes of photos with an EXIF orientation, and the splits."""

import numpy as np
import pytest
from photo_files import exif
from PIL import Image

from plate_models.images import decode
from plate_models.training import labels

HEAD = "image,x0,y0,x1,y1,text,lines"


def write_labels(folder, row, head=HEAD):
    (folder / "images").mkdir(exist_ok=True)
    (folder / "plates.csv").write_text(f"{head}\n{row}\n")


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_are_turned_like_their_photo(tmp_path, orientation):
    """Tables have boxes of the stored image; training and scoring use the upright photo."""
    pixels = np.zeros((60, 100, 3), np.uint8)
    pixels[10:30, 15:80] = 255
    write_labels(tmp_path, "b.png,15,10,80,30,A111 AA77,2,1", f"{HEAD},legible")
    with pytest.raises(FileNotFoundError, match=r"b\.png"):
        labels.load_labels(tmp_path)
    Image.fromarray(pixels).save(tmp_path / "images" / "b.png", exif=exif(orientation))
    (photo,) = labels.load_labels(tmp_path)
    rows, columns = np.nonzero(decode(photo.path.read_bytes())[..., 0])
    drawn = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert photo.plates == (labels.LabelledPlate(drawn, "A111AA77", True, 2),)
    write_labels(tmp_path, "b.png,15,60,80,90", "image,x0,y0,x1,y1")
    with pytest.raises(labels.LabelError, match="the stored photo of 100 x 60, got"):
        labels.load_labels(tmp_path)
    write_labels(tmp_path, "b.png,15,10,80,30", "image,x0,y0,x1,y1")
    assert labels.load_labels(tmp_path)[0].plates == (labels.LabelledPlate(drawn),)
    write_labels(tmp_path, "b.png,15,10,80,30\n" * 2, "image,x0,y0,x1,y1")
    with pytest.raises(labels.LabelError, match=r"line 3: b\.png has that box already"):
        labels.load_labels(tmp_path)


@pytest.mark.parametrize(
    ("row", "head", "reason"),
    [
        ("b.jpg,1,2,3", HEAD, ""),
        ("b.jpg,1,2,3,wide", HEAD, ""),
        ("b.jpg,1", "image,x0", "no column 'y0'"),
        ("", HEAD, "expected a row for each plate, found none"),
        ("b.jpg,1,2,3,4,A111AA77,3", HEAD, "lines: expected 1 or 2, got '3'"),
        ("b.jpg,5,2,3,4", HEAD, "expected x0 < x1"),
        ("b.jpg,1,2,3,4,A111AA77,1.0", f"{HEAD[:-5]}legible", "legible: expected 0, or 1 where"),
        ("b.jpg,1,2,3,4,А111АА77,1", HEAD, "text: expected Latin"),
        ("b.jpg,1,2,3,4,é111AA77,1", HEAD, "text: expected Latin"),
        ("b.jpg,1,2,3,4,,1", f"{HEAD[:-5]}legible", "legible: expected 0, or 1 where"),
        ("b.jpg,nan,2,3,4", f"\ufeff{HEAD}", "expected x0 < x1"),  # as Excel saves it
    ],
)
def test_errors_name_the_line_of_a_broken_label(tmp_path, row, head, reason):
    write_labels(tmp_path, row, head)
    with pytest.raises(labels.LabelError, match=rf"plates\.csv, line 2: {reason}"):
        labels.load_labels(tmp_path)


def test_neighbouring_frames_are_held_out_together():
    """For other photos that are held out see test_evaluation.py."""
    frames = [f"ro_dayride_type1_001.mp4_t_{second}.jpg" for second in range(0, 400, 10)]
    chosen = labels.validation_names(frames)
    assert 0 < len(chosen) < len(frames)
    for start in range(0, len(frames), 8):
        assert len(chosen & set(frames[start : start + 8])) in (0, 8)
