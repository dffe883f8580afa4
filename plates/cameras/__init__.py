"""Cameras: a stream goes in, one event for each passing vehicle comes out."""
