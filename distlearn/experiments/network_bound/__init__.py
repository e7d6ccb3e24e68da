"""What limits a data-parallel step, what moves the border: phase diagrams, limited links, messages of fewer bytes."""

from .judge import judge_all_reduce, judge_codec, judge_round
from .layers import LayerShape, layer_shapes
from .links import machine_diagram, measure_points
from .phases import (
    PARTS,
    PhaseDiagram,
    PhasePoint,
    cluster,
    cluster_diagrams,
    phase_diagram,
    point_table,
    simulate_points,
)
from .recipes import (
    CodeResult,
    Recipe,
    Run,
    bytes_sent,
    code_table,
    compare_codes,
    compare_recipes,
    recipe_table,
    run_recipe,
    tune_recipe,
)

__all__ = [
    "PARTS",
    "CodeResult",
    "LayerShape",
    "PhaseDiagram",
    "PhasePoint",
    "Recipe",
    "Run",
    "bytes_sent",
    "cluster",
    "cluster_diagrams",
    "code_table",
    "compare_codes",
    "compare_recipes",
    "judge_all_reduce",
    "judge_codec",
    "judge_round",
    "layer_shapes",
    "machine_diagram",
    "measure_points",
    "phase_diagram",
    "point_table",
    "recipe_table",
    "run_recipe",
    "simulate_points",
    "tune_recipe",
]
