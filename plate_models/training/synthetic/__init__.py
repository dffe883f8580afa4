"""The renderer of training data: flat plates, photographed crops and whole scenes."""
