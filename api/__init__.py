"""The gateway: an HTTP API in front of the Triton server that reads the photos."""
