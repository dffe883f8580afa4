"""A photo in which everything would be missed, and how much can be told in a piece of it."""

import cv2
import numpy as np

WIDTH, HEIGHT = 640, 480


def noise(seed: int = 7) -> np.ndarray:
    """A photo whose every pixel tells something."""
    blocks = np.random.default_rng(seed).integers(0, 256, (HEIGHT // 4, WIDTH // 4, 3), np.uint8)
    return np.ascontiguousarray(blocks.repeat(4, axis=0).repeat(4, axis=1))


def detail(pixels: np.ndarray) -> float:
    """Standard deviation of the second derivative: letters have edges."""
    return float(cv2.Laplacian(pixels, cv2.CV_64F).std())
