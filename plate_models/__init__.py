"""Finds, straightens and reads licence plates: nets, pipeline, renderer and training."""
