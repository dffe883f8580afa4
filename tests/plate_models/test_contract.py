"""What goes in and out of plate_recognition, as arrays."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from plate_models import contract, images
from plate_models.pipeline import Plate
from plate_models.recognition.decoding import Reading
from plate_models.spec import Limits

ORIGIN = contract.Origin("sha256:0123", "cpu")
PHOTO = torch.zeros((480, 640, 3), dtype=torch.uint8)
EVERYTHING = {*contract.OUTPUTS, contract.MODEL_INFO}


def plate(text: str, candidates: tuple[tuple[str, float], ...], readable: bool = True) -> Plate:
    best = candidates[0][0] if candidates else ""
    characters = tuple((char, 0.9) for char in best)
    reading = Reading(text if readable else "", 0.75, readable, "ru.car", characters, candidates)
    quad = ((1.0, 2.0), (3.0, 2.0), (3.0, 4.0), (1.0, 4.0))
    crop = np.full((48, 188, 3), 7, np.uint8)
    return Plate((1.0, 2.0, 3.0, 4.0), quad, 0.5, 1, reading, crop)


def png(pixels: np.ndarray) -> np.ndarray:
    return cv2.imencode(".png", pixels)[1].ravel()


def test_pixels_are_bgr_and_a_file_gives_the_same_photo() -> None:
    bgr = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    from_pixels = contract.photo_of(None, torch.from_numpy(bgr))
    assert torch.equal(from_pixels, torch.from_numpy(bgr[:, :, ::-1].copy()))
    assert from_pixels.is_contiguous()
    assert torch.equal(contract.photo_of(png(bgr), None), from_pixels)


def test_exactly_one_input() -> None:
    pixels = np.zeros((2, 2, 3), np.uint8)
    with pytest.raises(contract.InvalidInput, match="neither came"):
        contract.photo_of(None, None)
    with pytest.raises(contract.InvalidInput, match="both came"):
        contract.photo_of(png(pixels), torch.from_numpy(pixels))


@pytest.mark.parametrize("shape", [(0, 0, 3), (0, 5, 3), (5, 0, 3), (5, 4, 4), (5, 4), (3,)])
def test_pixels_of_a_wrong_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(contract.InvalidInput, match="input__0"):
        contract.photo_of(None, torch.zeros(shape, dtype=torch.uint8))


def test_pixels_of_a_wrong_type_and_too_many() -> None:
    with pytest.raises(contract.InvalidInput, match=r"UINT8 \[-1,-1,3\], got torch.float32"):
        contract.photo_of(None, torch.zeros((2, 2, 3)))
    pixels = torch.zeros((10, 11, 3), dtype=torch.uint8)
    assert contract.photo_of(None, pixels, Limits(max_pixels=110)).shape == (10, 11, 3)
    with pytest.raises(contract.InvalidInput, match="11x10 pixels"):
        contract.photo_of(None, pixels, Limits(max_pixels=109))


def test_bytes_of_a_wrong_rank_or_content() -> None:
    with pytest.raises(contract.InvalidInput, match=r"image: expected UINT8 \[-1\]"):
        contract.photo_of(np.zeros((2, 2), np.uint8), None)
    with pytest.raises(images.EmptyImage):
        contract.photo_of(np.zeros(0, np.uint8), None)
    with pytest.raises(images.UnsupportedType):
        contract.photo_of(np.frombuffer(b"not a photo", np.uint8), None)


def test_no_plates_is_an_answer() -> None:
    outputs = contract.outputs_of([], PHOTO, ORIGIN, EVERYTHING)
    shapes = {name: array.shape for name, array in outputs.items()}
    assert shapes == {
        "coordinates": (0, 4),
        "texts": (0, 1),
        "detection_scores": (0,),
        "text_scores": (0,),
        "quads": (0, 4, 2),
        "character_scores": (0, 10),
        "formats": (0,),
        "candidates": (0, 5),
        "candidate_scores": (0, 5),
        "crops": (0, 48, 188, 3),
        "model_info": (1,),
    }
    assert all(array.flags.c_contiguous for array in outputs.values())


def test_only_what_is_asked_for_is_made() -> None:
    outputs = contract.outputs_of([], PHOTO, ORIGIN, {"texts", "coordinates"})
    assert set(outputs) == {"texts", "coordinates"}


def test_rows_are_padded() -> None:
    plates = [
        plate("A1", (("A1", 0.75), ("A7", 0.25))),
        plate("", (), readable=False),
        plate("B840CK197", tuple((f"B840CK19{n}", 0.1) for n in range(7)), readable=False),
    ]
    outputs = contract.outputs_of(plates, PHOTO, ORIGIN, EVERYTHING)
    assert outputs["texts"].tolist() == [["A1"], [""], [""]]
    assert outputs["formats"].tolist() == ["ru.car"] * 3
    assert outputs["candidates"][0].tolist() == ["A1", "A7", "", "", ""]
    assert outputs["candidates"][1].tolist() == [""] * 5
    assert outputs["candidates"].shape == (3, 5)
    np.testing.assert_allclose(outputs["candidate_scores"][0], [0.75, 0.25] + [np.nan] * 3)
    np.testing.assert_allclose(outputs["character_scores"][0], [0.9, 0.9] + [np.nan] * 8)
    assert np.isnan(outputs["character_scores"][1]).all()
    assert np.isfinite(outputs["character_scores"][2]).sum() == 9
    assert outputs["coordinates"].tolist() == [[1, 2, 3, 4]] * 3
    assert outputs["quads"][0].tolist() == [[1, 2], [3, 2], [3, 4], [1, 4]]
    assert outputs["crops"].shape == (3, 48, 188, 3) and (outputs["crops"] == 7).all()


def test_a_long_reading_widens_the_character_scores() -> None:
    long = "A" * 13
    outputs = contract.outputs_of(
        [plate(long, ((long, 0.5),)), plate("A1", (("A1", 1.0),))], PHOTO, ORIGIN, EVERYTHING
    )
    assert outputs["character_scores"].shape == (2, 13)
    assert np.isfinite(outputs["character_scores"]).sum() == 15


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)


@pytest.mark.usefixtures("four_gpus")
def test_model_info_names_the_weights_the_device_and_the_size(tmp_path: Path) -> None:
    manifest = {"weights": "sha256:abc", "torch": "x"}
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / contract.MANIFEST).write_text(json.dumps(manifest))
    instance = {"model_instance_kind": "GPU", "model_instance_device_id": "1"}
    folder = {"model_repository": str(tmp_path), "model_version": "1"}
    origin = contract.read_origin(instance | folder)
    outputs = contract.outputs_of([], PHOTO, origin, {contract.MODEL_INFO})
    assert json.loads(outputs[contract.MODEL_INFO][0]) == {
        "version": "1",
        "weights": "sha256:abc",
        "device": "cuda:1",
        "image": {"width": 640, "height": 480},
    }


def test_model_info_tells_how_long_the_stages_took_if_that_is_known() -> None:
    spent = {"decode": 1.5, "yolo": 20.0}
    outputs = contract.outputs_of([], PHOTO, ORIGIN, {contract.MODEL_INFO}, spent)
    assert json.loads(outputs[contract.MODEL_INFO][0])["timing_ms"] == spent


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("kind", "number", "device"),
    [("CPU", "0", "cpu"), ("GPU", "0", "cuda:0"), ("GPU", "3", "cuda:3")],
)
def test_the_device_follows_the_instance(kind: str, number: str, device: str) -> None:
    arguments = {"model_instance_kind": kind, "model_instance_device_id": number}
    assert contract.device_of(arguments) == device


@pytest.mark.usefixtures("four_gpus")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    arguments = {"model_instance_kind": "GPU", "model_instance_device_id": "4"}
    with pytest.raises(RuntimeError, match="sees 4 GPUs, not number 4"):
        contract.device_of(arguments)


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (images.EmptyImage("Nothing came."), "empty-image: Nothing came.", "INVALID_ARG"),
        (contract.InvalidInput("No."), "invalid-input: No.", "INVALID_ARG"),
        (contract.GraphError("yolo: queue"), "yolo: queue", "UNAVAILABLE"),
        (contract.GraphError("yolo: fault", transient=False), "yolo: fault", "INTERNAL"),
        (contract.TimeoutExpired("Too late."), "Too late.", "UNAVAILABLE"),
        (contract.CallerGone("Gone."), "Gone.", "CANCELLED"),
        (KeyError("/a/path"), "unexpected KeyError, see the server's log", "INTERNAL"),
    ],
)
def test_problems_have_a_code_and_hide_what_is_ours(
    error: Exception, message: str, code: str
) -> None:
    assert contract.problem_of(error) == (message, code)
