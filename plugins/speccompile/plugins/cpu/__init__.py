"""Operators for ONNX Runtime on a CPU, in C; a package, so that an archive may hold it."""
