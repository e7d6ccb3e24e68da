"""What a lab needs around its subject: predictions, checks that explain, deliberate failures, figures with a text.

A lab uses one object, `lab = distcourse.Lab("07")`; see `Lab`. Nothing here writes a file or seeds a
generator. How to write a lab with it: course/AUTHORING.md.
"""

from __future__ import annotations

from distlearn import lazy

__all__, __getattr__, __dir__ = lazy(
    __name__,
    {
        "check": "Check CheckFailed",
        "diagnose": "Comparison compare",
        "film": "kernel_film",
        "kernels": "at_cell_lines in_parallel launched",
        "lab": "Lab NothingFailed",
        "pictures": "images",
        "predict": "Prediction PredictionInvalid PredictionMissing",
        "show": "Card Line",
        "study": "Study",
    },
)
