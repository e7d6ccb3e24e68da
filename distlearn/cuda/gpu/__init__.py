"""What needs NVIDIA's libraries: NVRTC, which compiles without a card."""
