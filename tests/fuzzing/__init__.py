"""Hostile requests, made from a seed and sent to the real service: `make fuzz`."""
