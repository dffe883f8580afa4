"""Frames are read by a real Triton as by nets in this process."""

import cv2
import numpy as np
import pytest
from support import SAMPLES

from api.settings import Settings
from plate_models.engines.nets import load_nets
from plates.cameras.fusion import Reader
from plates.cameras.recognizer import TritonRecognizer, seen_plates
from plates.serving.triton import shared_memory

pytestmark = [pytest.mark.live, pytest.mark.control]


def test_frames_are_read_alike_through_shared_memory_and_over_the_network(triton):
    server = triton.embedded
    nets, before = load_nets(), shared_memory("psm_")  # as Python names its segments
    settings = Settings(triton_url=server.grpc_url)
    recognizers = [TritonRecognizer(settings, "gate", key) for key in (server.http.key, "")]
    lines = set()
    scenes = [cv2.imread(str(path)) for path in sorted(SAMPLES.glob("*.jpg"))]
    for image in [*scenes, np.full((300, 400, 3), 127, np.uint8)]:  # the last without plates
        here = nets.read(np.ascontiguousarray(image[..., ::-1]), still=False)
        lines |= {plate.lines for plate in here}
        for recognizer in recognizers:
            there = recognizer.read(image)
            assert [plate.text for plate in there] == [plate.reading.text for plate in here]
            for one, other, again in zip(there, here, seen_plates(here, image), strict=True):
                assert one.candidates[0][0] == other.reading.best
                assert one.score == pytest.approx(other.reading.score, abs=1e-4)
                np.testing.assert_allclose(one.box, other.box, atol=0.5)
                steps = other.log_probs.shape[1]
                np.testing.assert_allclose(one.log_probs[:, :steps], other.log_probs, atol=0.05)
                np.testing.assert_allclose(one.crop, other.crop, atol=2)
                assert one.evidence.lines == again.evidence.lines == other.lines
                assert one.evidence.ground == pytest.approx(again.evidence.ground, abs=0.02)
                assert one.evidence[2:] == pytest.approx(again.evidence[2:], abs=0.02)
    assert lines == {1, 2}
    # Torch would take 200 MB of plate_recognition's process.
    libraries = {file.path for stub in server.stubs for file in stub.memory_maps()}
    assert any("cv2" in path for path in libraries) and not any("torch" in p for p in libraries)
    # A segment is unlinked as soon as both processes map it, so that a kill leaves nothing.
    assert shared_memory("psm_") == before
    config, found = nets.config, recognizers[0].reader
    assert found.model.weights.startswith("sha256:")
    # This comes from Triton, which may be on another machine, not from the model repository.
    assert found == Reader(config.grammar, config.calibration, config.specs.recognizer, found.model)
