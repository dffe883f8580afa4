"""Cameras of a whole service: RTSP in, webhooks out, and nothing lost whoever is killed."""

import pytest
from support import SAMPLES

pytestmark = [pytest.mark.live, pytest.mark.control]
CLIP = SAMPLES / "two_cars.mp4"
TEXTS = {"X556XM750"}
PATIENCE_S = 60
