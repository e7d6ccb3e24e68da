from typing import Any
from distlearn.viz.files import describe as describe
from distlearn.viz.look import lightness as lightness
from distlearn.viz.curves import plot_history as plot_history
from distlearn.viz.layers import plot_layers as plot_layers
from distlearn.viz.memory import plot_memory as plot_memory
from distlearn.viz.layers import plot_products as plot_products
from distlearn.viz.roofline import plot_roofline as plot_roofline
from distlearn.viz.pipeline import plot_schedule as plot_schedule
from distlearn.viz.spacetime import plot_spacetime as plot_spacetime
from distlearn.viz.scaling import plot_speedup as plot_speedup
from distlearn.viz.timeline import plot_timeline as plot_timeline
from distlearn.viz.files import save as save
from distlearn.viz.look import style as style
from distlearn.tables import table as table
from distlearn.viz.look import use_style as use_style
COLORS: tuple[str, ...]
LINES: tuple[Any, ...]
MARKERS: tuple[str, ...]
