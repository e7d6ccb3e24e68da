"""Arrays on ranks, drawn: bands for shards, one block for what all have, a stack for summands."""

import pytest
from distcourse import lab09
from distcourse.mesh import Partial, Replicate, Shard
from matplotlib.patches import Rectangle


@pytest.mark.parametrize(
    ("placement", "blocks"), [(Shard(0), 3), (Shard(1), 3), (Replicate(), 1), (Partial(), 3)], ids=repr
)
def test_there_is_a_block_for_every_part(placement, blocks):
    ax = lab09.plot_placements({"x": (2, 3, placement)}, 3)
    drawn = [p for p in ax.patches if isinstance(p, Rectangle) and p.get_fill()]
    assert len(drawn) == blocks
    area = sum(p.get_width() * p.get_height() for p in drawn)
    assert area == pytest.approx(6 * (blocks if placement == Partial() else 1))
    assert {"x", repr(placement)} <= {text.get_text() for text in ax.texts}


def test_a_product_is_drawn_with_its_signs():
    shown = {"x": (2, 3, Shard(1)), "@": None, "W": (3, 1, Shard(0)), "=": None, "y": (2, 1, Partial())}
    ax = lab09.plot_placements(shown, 2, title="A product")
    assert ax.get_title(loc="left") == "A product"
    assert {"@", "=", "y"} <= {text.get_text() for text in ax.texts}
