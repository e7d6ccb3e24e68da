"""Attention: equal to its definition and to PyTorch's, and block by block the same with less memory."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distlearn import nn
from distlearn.nn.attention import attend, attend_backward, finish, merge, partial
from distlearn.nn.attention.multi_head import rotate
from distlearn.optim import Adam, Optimizer

from .cases import learn


def inputs(batch, heads, n, d, m=None):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(batch, heads, rows, d)) for rows in (n, m or n, m or n)]


def by_hand(q, k, v, causal):
    """One query at a time, as the paper writes it."""
    y = np.zeros_like(q)
    for b, h, i in itertools.product(*map(range, q.shape[:3])):
        keys, values = k[b, h], v[b, h]
        seen = i + 1 if causal else len(keys)
        weights = np.exp(keys[:seen] @ q[b, h, i] / np.sqrt(q.shape[-1]))
        y[b, h, i] = weights @ values[:seen] / weights.sum()
    return y


@given(
    st.integers(0, 2),
    st.sampled_from([1, 4]),
    st.integers(1, 9),
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 3),
)
@settings(max_examples=80, deadline=None)
def test_it_is_what_the_paper_says(batch, heads, n, d, causal, more):
    q, k, v = inputs(batch, heads, n, d, m=n if causal else n + more)
    np.testing.assert_allclose(attend(q, k, v, causal=causal)[0], by_hand(q, k, v, causal), atol=1e-12)


@given(st.permutations(range(4)), st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_partial_results_merge_in_any_order_and_grouping(order, split):
    q, k, v = inputs(1, 2, 5, 4, m=12)
    hidden = np.zeros((5, 3))
    hidden[2:, :] = -np.inf  # queries that see nothing of the second block
    parts = [partial(q, k[:, :, 3 * i : 3 * i + 3], v[:, :, 3 * i : 3 * i + 3], hidden if i == 1 else None)
             for i in range(4)]  # fmt: skip
    left = parts[order[0]]
    for i in order[1:split]:
        left = merge(left, parts[i])
    right = parts[order[split]]
    for i in order[split + 1 :]:
        right = merge(right, parts[i])
    y, lse = finish(merge(left, right))
    others = [np.delete(a, [3, 4, 5], axis=2) for a in (k, v)]
    want = np.concatenate([attend(q[:, :, :2], k, v)[0], attend(q[:, :, 2:], *others)[0]], axis=2)
    np.testing.assert_allclose(y, want, atol=1e-12)
    assert np.isfinite(lse).all()


def test_scores_of_a_thousand_do_not_overflow():
    q, k, v = inputs(1, 1, 6, 4)
    y, saved = attend(1000 * q, 1000 * k, v, causal=True)
    for array in (y, *attend_backward(np.ones_like(y), saved), *finish(partial(1000 * q, 1000 * k, v))):
        assert np.isfinite(array).all()


def test_scores_depend_on_the_distance_alone():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 1, 6))
    for distance in (0, 1, 7):
        scores = [(rotate(a, start=t) @ rotate(b, start=t + distance).T).item() for t in (0, 3, 50)]
        np.testing.assert_allclose(scores, scores[0], rtol=1e-12)
    np.testing.assert_allclose(rotate(rotate(a, start=9), start=9, back=True), a, atol=1e-14)


def test_a_causal_layer_does_not_see_what_follows():
    layer, rng = nn.MultiHeadAttention(8, 2, range(4), dtype="float64"), np.random.default_rng(2)
    x = rng.normal(size=(1, 6, 8))
    y = layer.forward(x)[0]
    x[:, 4:] = rng.normal(size=(1, 2, 8))
    np.testing.assert_array_equal(layer.forward(x)[0][:, :4], y[:, :4])
    x[:, 0] += 1
    assert (layer.forward(x)[0][:, 1:4] != y[:, 1:4]).any()


@pytest.mark.parametrize(("args", "message"), [((10, 4), "width 10"), ((12, 4), "even width"), ((8, 0), "heads")])
def test_wrong_sizes_are_named(args, message):
    with pytest.raises(ValueError, match=message):
        nn.MultiHeadAttention(*args)
    with pytest.raises(ValueError, match="causal, expected"):
        attend(*(np.zeros((1, 2, n, 4)) for n in (3, 5, 5)), causal=True)


def test_gelu_and_rms_norm_are_pytorchs():
    torch = pytest.importorskip("torch", reason="the peer is an extra: pip install -e '.[bench]'")
    x = np.random.default_rng(3).normal(size=(5, 6))
    want = torch.nn.functional.gelu(torch.tensor(x), approximate="tanh").numpy()
    np.testing.assert_allclose(nn.GELU().forward(x)[0], want, atol=1e-14)
    want = torch.nn.functional.rms_norm(torch.tensor(x), (6,), eps=1e-5).numpy()
    np.testing.assert_allclose(nn.RMSNorm(6, dtype="float64").forward(x)[0], want, atol=1e-14)


def test_a_small_gpt_learns_to_count():
    rng = np.random.default_rng(4)
    model = nn.GPT(10, width=16, heads=2, n_blocks=1)
    texts = [(rng.integers(10, size=(16, 1)) + np.arange(9)) % 10 for _ in range(150)]
    batches = [(x[:, :-1], x[:, 1:]) for x in texts]
    losses = learn(model, nn.SoftmaxCrossEntropy(), Optimizer(model.params, Adam(), 0.01), batches)
    assert losses[-1] < 0.05 < 2 < losses[0]
