"""The backend "onnxruntime" in Python, for servers without libtriton_onnxruntime.so."""

from plate_models.backends.graph_model import GraphModel
from plate_models.engines import onnxruntime_engine


class TritonPythonModel(GraphModel):
    """Serves ``model.onnx`` on the CPU."""

    engine = onnxruntime_engine
