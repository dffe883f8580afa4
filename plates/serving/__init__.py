"""Starts a real Triton on this machine, from its wheel or its image, and keeps it running."""
