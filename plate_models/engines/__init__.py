"""The three nets as functions in this process, on one of several engines.

Triton's stubs load single graphs with `openvino_engine`. Torch is imported only to run torch
modules and to export; exported graphs run without it.
"""

ENGINES = ("served", "torch")  # the repository's CPU profile; float32 modules, CPU or GPU
