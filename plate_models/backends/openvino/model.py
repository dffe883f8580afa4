"""The backend "openvino" in Python, for servers without libtriton_openvino.so."""

from plate_models.backends.graph_model import GraphModel


class TritonPythonModel(GraphModel):
    """Serves ``model.onnx`` on the CPU."""
