"""Splices real plates: a part of one plate's characters in place of a part of another's.

Trainings learn the few texts of real plates by heart; spliced plates have new texts in real
typefaces. No label says where a character stands, and the recognizer's steps don't, either: they
may come early by a character's width. So plates are cut where the recognizer reads the beginning of
the text on the left, and the rest on the right.
"""

from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import nn

from plate_models.pixels import resample, stretch_contrast
from plate_models.recognition import ctc
from plate_models.rectification import FRAME
from plate_models.spec import RECOGNIZER, RECTIFIER
from plate_models.training import imaging
from plate_models.training.crop_cache import CropBatch
from plate_models.training.imaging import Floats, Image

_CUTS_APART = 4  # pixels between the cuts that are tried
_STRETCH = 1.5  # the most that a spliced plate is stretched or squeezed


class Strip(NamedTuple):
    """A plate with one line of text, which can be cut."""

    crop: CropBatch  # one crop
    picture: Image  # (48, 188, 3) uint8 RGB, rectified
    labels: list[int]  # classes of its characters
    cuts: list[tuple[int, int]]  # column, and number of characters on its left; also both ends
    dark: bool  # whether the characters are darker than the ground


def strips_of(crops: CropBatch, recognizer: nn.Module) -> list[Strip]:
    """Find where to cut plates with one line, by a net that reads them, in evaluation mode."""
    height, width = RECTIFIER.crop_hw
    corners = crops.quads * np.array((2 / width, 2 / height), np.float32) - 1
    theta = (np.linalg.pinv(FRAME) @ corners).swapaxes(1, 2)
    planes = crops.images.transpose(0, 3, 1, 2).astype(np.float32)
    pictures = resample(planes, theta, RECTIFIER.shown_hw).round().astype(np.uint8)
    strips = []
    for row, picture in enumerate(pictures.transpose(0, 2, 3, 1)):
        crop = crops.part([row])
        labels = crop.labels[crop.labels >= 0].tolist()
        low, middle, high = np.percentile(picture[8:-8].mean(axis=2), (5, 50, 95))
        dark = bool(middle - low > high - middle)
        strips.append(Strip(crop, picture, labels, _cuts(picture, labels, recognizer), dark))
    return [strip for strip in strips if len(strip.cuts) > 2]


def draw_spliced(strips: Sequence[Strip], rng: Generator, count: int) -> list[CropBatch]:
    """Draw spliced plates, one in each batch; none if there are no strips."""
    drawn = list[CropBatch]()
    while strips and len(drawn) < count:
        one, other = rng.integers(len(strips), size=2).tolist()
        if spliced := _splice(strips[one], strips[other], rng):
            drawn.append(spliced)
    return drawn


def _cuts(picture: Image, labels: list[int], recognizer: nn.Module) -> list[tuple[int, int]]:
    width = picture.shape[1]
    columns = range(_CUTS_APART, width, _CUTS_APART)
    left = np.arange(width)[:, None] < np.array(columns)[:, None, None, None]
    ground = np.median(picture, axis=(0, 1)).astype(np.uint8)
    before = _read(np.where(left, picture, ground), recognizer)
    after = _read(np.where(left, ground, picture), recognizer)
    places = dict[int, list[int]]()
    for column, first, rest in zip(columns, before, after, strict=True):
        if first + rest == labels:
            places.setdefault(len(first), []).append(column)
    ends = {0: [0], len(labels): [width]}
    return sorted((round(np.mean(found)), count) for count, found in (places | ends).items())


def _read(pictures: NDArray[np.uint8], recognizer: nn.Module) -> list[list[int]]:
    """Classes of the texts on rectified plates (N, 48, 188, 3)."""
    size_wh = RECTIFIER.rectified_hw[::-1]
    small = np.stack([cv2.resize(each, size_wh, interpolation=cv2.INTER_AREA) for each in pictures])
    planes = stretch_contrast(small.transpose(0, 3, 1, 2).astype(np.float32))
    with torch.no_grad():
        logits = recognizer(torch.from_numpy((planes - RECTIFIER.mean) / RECTIFIER.std))
    return [ctc.encode(ctc.greedy_decode(ctc.log_softmax(row.numpy()))) for row in logits]


def _splice(one: Strip, other: Strip, rng: Generator) -> CropBatch | None:
    """Replace some characters of a plate's crop; None if the plates or their widths don't fit."""
    (x0, first), (x1, last) = sorted(rng.choice(one.cuts, 2, replace=False).tolist())
    (u0, start), (u1, end) = sorted(rng.choice(other.cuts, 2, replace=False).tolist())
    labels = one.labels[:first] + other.labels[start:end] + one.labels[last:]
    height, width = one.picture.shape[:2]
    stretch = width / (width - (x1 - x0) + (u1 - u0))
    if one.dark != other.dark or not 1 / _STRETCH < stretch < _STRETCH:
        return None
    if len(labels) > RECOGNIZER.max_text_length:
        return None
    (ground, spread), (mean, deviation) = map(_tone, (one.picture, other.picture))
    alike = (other.picture - mean) * np.clip(spread / deviation, 0.5, 2) + ground
    part = alike[:, u0:u1].clip(0, 255).astype(np.uint8)
    picture = np.concatenate((one.picture[:, :x0], part, one.picture[:, x1:]), axis=1)
    corners = imaging.box_corners(picture.shape[1], height).astype(np.float32)
    view = cv2.getPerspectiveTransform(corners, one.crop.quads[0])
    image, size_wh = one.crop.images[0].copy(), RECTIFIER.crop_hw[::-1]
    cv2.warpPerspective(picture, view, size_wh, image, borderMode=cv2.BORDER_TRANSPARENT)
    classes = np.full_like(one.crop.labels, -1)
    classes[0, 0, : len(labels)] = labels
    return CropBatch(image[None], one.crop.quads, classes)


def _tone(picture: Image) -> tuple[Floats, Floats]:
    """(3,) mean and standard deviation of the colours of a plate's middle rows."""
    middle = picture[8:-8].reshape(-1, 3)
    return middle.mean(axis=0), middle.std(axis=0) + 4
