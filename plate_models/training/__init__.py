"""Training and measurement of weights: data, losses, loops, evaluation, calibration, import."""
