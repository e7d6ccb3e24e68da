"""Checks of layers, rules, losses, metrics, strategies and collectives, of the library and of one's own."""

from .. import lazy

_HOMES = {
    "checks": (
        "GradientError check_collective check_layer check_loss check_metric check_rule "
        "check_strategy gradient_check numeric_gradient"
    )
}
__all__, __getattr__, __dir__ = lazy(__name__, _HOMES)
