"""What needs NVIDIA's libraries: NVRTC (it compiles without a card), cuBLAS, and captured graphs."""
