"""Sends hostile requests, generated from a seed, to the real service: `make fuzz`."""
