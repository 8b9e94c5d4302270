"""Python's control flow in kernels: what decides by a value that is only known on the GPU."""
