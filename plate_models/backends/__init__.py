"""Triton backends in Python, for servers that lack the C++ ones."""
