"""The three nets as functions, on whichever engine runs them in this process.

Triton's stubs load single graphs from `openvino_engine`. Torch is imported for its own modules, and
to export: what was exported is read without it.
"""
