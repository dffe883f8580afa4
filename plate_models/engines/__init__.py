"""The three nets as functions, on whichever engine runs them in this process.

Triton's stubs load single graphs from `openvino_engine`, which knows numpy alone: a stub that has
no need of torch does not pay for it.
"""
