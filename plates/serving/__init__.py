"""Start a real Triton on this machine, from its wheel or its image, and keep it running."""
