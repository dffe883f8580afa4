"""Weights from elsewhere become ours: safetensors with a contract. No pickle is ever run."""

from plate_models.training.importing.claims import CheckpointError
from plate_models.training.importing.recognizer import import_recognizer
from plate_models.training.importing.yolov5 import import_yolov5

__all__ = ["CheckpointError", "import_recognizer", "import_yolov5"]
