"""Automatic, verified repair of JAX Pallas kernels for NVIDIA GPUs (Mosaic GPU)."""

__version__ = "0.1.0"
