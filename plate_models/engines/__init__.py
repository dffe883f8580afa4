"""The three nets as functions, on whichever engine runs them in this process.

    served   what the CPU profile of the model repository runs: ``model.onnx`` on the engine
             that each model's ``configs/cpu.pbtxt`` names, with the same settings
    torch    the modules of ``weights/`` in float32: the reference, and what runs on a GPU

Triton's stubs load single graphs from `openvino_engine`, which knows numpy alone: a stub that has
no need of torch does not pay for it.
"""
