"""CUDA C on a CPU: front end, builds, and in `runtime/` the C++ code that runs and checks a kernel."""
