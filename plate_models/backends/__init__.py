"""Python-based Triton backends: where the C++ ones are not at hand."""
