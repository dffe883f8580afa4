"""Logits to texts: CTC beam, plate grammar, ground colour, calibrated scores."""
