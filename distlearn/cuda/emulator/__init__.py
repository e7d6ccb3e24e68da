"""CUDA C on a CPU: the front end, the builds, and in `runtime/` the C++ that runs and checks a kernel."""
