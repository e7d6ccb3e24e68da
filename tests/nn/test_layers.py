"""What the table of gradients cannot see: modes, memory, randomness, statistics, shapes."""

import numpy as np
import pytest

from distlearn import nn
from distlearn.optim import SGD, Optimizer
from distlearn.parallel import Serial


def x_of(*shape, seed=1, dtype="float64"):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def serial(model):
    return Serial(None, model, nn.MeanSquaredError(), Optimizer(model.params, SGD(), 0.1))


class TestEval:
    """Training or predicting is a property of the object that is called."""

    def model(self):
        return nn.Sequential(
            nn.Linear(4, 6, dtype="float64"),
            nn.BatchNorm(6, dtype="float64"),
            nn.Residual(nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 6, dtype="float64"))),
        )

    def test_it_drops_nothing_and_uses_running_statistics(self):
        model, x = self.model(), x_of(8, 4)
        predict = model.eval()
        np.testing.assert_array_equal(predict.forward(x)[0], predict.forward(x)[0])
        one = predict.forward(x[:1])[0]
        np.testing.assert_allclose(predict.forward(x)[0][:1], one, rtol=1e-12)
        assert not np.allclose(model.forward(x)[0], model.forward(x)[0])

    def test_it_shares_the_parameters_and_follows_them(self):
        model, x = self.model(), x_of(8, 4)
        predict = model.eval()
        before = predict.forward(x)[0]
        assert all(p is q for p, q in zip(model.params, predict.params, strict=True))
        model.params[0].data[...] *= 2
        model.layers[1].running_mean.data[...] = 1
        assert not np.allclose(predict.forward(x)[0], before)
        assert [p.name for p in model.params] == [p.name for p in predict.params]

    def test_a_model_without_modes_is_its_own(self):
        model = nn.MLP((3, 2))
        assert model.eval() is model
        assert self.model().eval().eval().forward(x_of(2, 4))[0].shape == (2, 6)


class TestBatchNorm:
    def test_it_normalises_and_remembers(self):
        layer, x = nn.BatchNorm(3, momentum=0.25, dtype="float64"), 2 + 3 * x_of(50, 4, 3)
        y, saved = layer.forward(x)
        np.testing.assert_allclose(y.mean(axis=(0, 1)), 0, atol=1e-12)
        np.testing.assert_allclose(y.std(axis=(0, 1)), 1, rtol=1e-5)
        assert (layer.running_mean.data == 0).all()  # forward changes nothing
        layer.backward(np.ones_like(y), saved)
        np.testing.assert_allclose(layer.running_mean.data, 0.25 * x.mean(axis=(0, 1)))
        np.testing.assert_allclose(layer.running_var.data, 0.75 + 0.25 * x.var(axis=(0, 1), ddof=1))

    def test_running_statistics_are_no_parameters_to_learn(self):
        layer = nn.BatchNorm(3)
        assert nn.parameter_count(layer) == 6
        assert [p.name for p in layer.params if p.frozen] == ["running_mean", "running_var"]

    def test_one_value_cannot_be_normalised(self):
        layer, words = nn.BatchNorm(3, dtype="float64"), "expected 2 or more when training.* or use eval"
        with pytest.raises(
            ValueError, match=rf"BatchNorm\(.*\): 1 value per channel in an input of shape \(1, 3\), {words}"
        ):
            layer.forward(x_of(1, 3))
        with pytest.raises(ValueError, match=r"shape \(1, 1, 1, 3\)"):
            layer.forward(x_of(1, 1, 1, 3))
        layer.eval().forward(x_of(1, 3))
        layer.forward(x_of(1, 2, 3))


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_the_p_of_dropout_is_a_share(p):
    with pytest.raises(ValueError, match=f"Dropout: p is {p}"):
        nn.Dropout(p)


class TestRecompute:
    def body(self):
        return nn.Sequential(
            *(
                layer
                for i in range(4)
                for layer in (nn.Linear(16, 16, i, dtype="float64"), nn.Tanh(), nn.Dropout(0.2, i))
            )
        )

    def test_same_gradients_less_memory_and_the_random_sequence_goes_on_as_without(self):
        x = x_of(8, 16)
        plain, again = self.body(), nn.Recompute(self.body())
        for _ in range(3):
            (y, saved), (z, kept) = plain.forward(x), again.forward(x)
            np.testing.assert_array_equal(y, z)
            assert nn.nbytes(kept) == x.nbytes
            assert nn.nbytes(saved) > 5 * x.nbytes
            dx, dz = plain.backward(np.ones_like(y), saved), again.backward(np.ones_like(z), kept)
            np.testing.assert_array_equal(dx, dz)
        for p, q in zip(plain.params, again.params, strict=True):
            assert p.grad.any()
            np.testing.assert_array_equal(p.grad, q.grad)

    def test_batch_norm_counts_every_batch_once(self):
        plain, again = nn.BatchNorm(3, dtype="float64"), nn.Recompute(nn.BatchNorm(3, dtype="float64"))
        for layer in (plain, again):
            y, saved = layer.forward(x_of(9, 3))
            layer.backward(np.ones_like(y), saved)
        np.testing.assert_array_equal(plain.running_mean.data, again.layers[0].running_mean.data)

    def test_it_costs_a_forward_pass(self):
        body = nn.MLP((4, 5, 3))
        assert nn.Recompute(body).backward_flops((2, 4)) == body.backward_flops((2, 4)) + body.flops((2, 4))


class TestPool:
    def test_against_the_definition(self):
        x = x_of(2, 7, 6, 3)
        got = nn.MaxPool(3, 2).forward(x)[0]
        want = np.array([[x[:, i : i + 3, j : j + 3].max(axis=(1, 2)) for j in (0, 2)] for i in (0, 2, 4)])
        np.testing.assert_array_equal(got, want.transpose(2, 0, 1, 3))

    @pytest.mark.parametrize("layer", [nn.MaxPool(2), nn.MaxPool(3, 2, padding=1)])
    def test_the_size_of_the_pieces_changes_nothing(self, layer, monkeypatch):
        results = []
        for size in (1, 1 << 30):
            monkeypatch.setattr("distlearn.nn.ops.CACHE_BYTES", size)
            y, saved = layer.forward(x_of(5, 8, 8, 3))
            results.append((y, layer.backward(y.copy(), saved)))
        np.testing.assert_array_equal(results[0][0], results[1][0])
        np.testing.assert_array_equal(results[0][1], results[1][1])

    def test_equal_values_share_one_gradient_not_several(self):
        layer, x = nn.MaxPool(2), np.ones((1, 4, 4, 1))
        y, saved = layer.forward(x)
        dx = layer.backward(np.ones_like(y), saved)
        assert dx.sum() == 4
        assert dx[0, 0, 0, 0] == 1

    @pytest.mark.parametrize(("n", "ceil", "want"), [(112, True, 56), (112, False, 55), (54, True, 27), (5, True, 2)])
    def test_ceil(self, n, ceil, want):
        assert nn.MaxPool(3, 2, ceil=ceil).output_shape((1, n, n, 1)) == (1, want, want, 1)

    def test_a_border_never_wins(self):
        assert (nn.MaxPool(3, 1, padding=1).forward(-np.ones((1, 3, 3, 1)))[0] == -1).all()

    def test_errors(self):
        with pytest.raises(ValueError, match="smaller than the window"):
            nn.MaxPool(3).forward(x_of(1, 2, 5, 1))
        with pytest.raises(ValueError, match=r"padding is \(2, 2\), expected less than the window"):
            nn.MaxPool(2, padding=2)


class TestContainers:
    def test_parallel_joins_channels_and_adds_gradients(self):
        layer = nn.Parallel(nn.Identity(), nn.Identity())
        y, saved = layer.forward(x_of(2, 3))
        assert y.shape == (2, 6)
        np.testing.assert_array_equal(layer.backward(np.ones_like(y), saved), 2)
        with pytest.raises(ValueError, match="differ in more than the last axis"):
            nn.Parallel(nn.Identity(), nn.MaxPool(2)).forward(x_of(1, 4, 4, 1))

    def test_a_list_of_layers_is_refused_with_the_way_to_give_it(self):
        with pytest.raises(TypeError, match=r"Sequential: layer 0 is \[.*Sequential\(\*layers\)"):
            nn.Sequential([nn.ReLU(), nn.Tanh()])

    def test_tied_parameters_of_nested_containers_are_named_after_their_first_place(self):
        first, second, other = (nn.Linear(2, 2, i, dtype="float64") for i in range(3))
        second.W = first.W
        second.params[0] = first.W
        inside = nn.Sequential(first, nn.Sequential(other))
        model = nn.Sequential(inside, nn.Sequential(nn.Tanh(), second))
        names = ["0.0.W", "0.0.b", "0.1.0.W", "0.1.0.b", "1.1.b"]
        assert [p.name for p in model.params] == names
        assert list(serial(model).gather_params()) == names

    def test_parameters_that_cannot_be_told_apart_are_refused(self):
        class Pair(nn.Layer):
            """Two dense layers, whose parameters have the same names."""

            def __init__(self):
                self.one, self.two = nn.Linear(2, 2, 0), nn.Linear(2, 2, 1)
                self.params = self.one.params + self.two.params

        with pytest.raises(ValueError, match=r"layer 1, Pair\(\), has two parameters named 'W'.* Sequential"):
            nn.Sequential(nn.ReLU(), Pair())
        with pytest.raises(ValueError, match=r"2 parameters of the model are named 'W'"):
            serial(Pair())

    def test_layers_that_another_model_has_renamed_since_are_refused(self):
        model = nn.MLP((4, 3, 2))
        nn.Sequential(model.layers[2])
        with pytest.raises(ValueError, match=r"2 parameters of the model are named '0.W'.*another container"):
            serial(model)

    def test_an_empty_batch_passes_by_the_layers(self):
        """What a rank without samples has: shapes, no values, and gradients that are complete."""

        class Largest(nn.Layer):
            """Fails without values, as `max` does."""

            def forward(self, x):
                return x / x.max(), x.max()

        model = nn.Sequential(nn.Embedding(5, 3, 0), Largest(), nn.Linear(3, 2, 1))
        y, saved = model.forward(np.zeros((0, 4), np.int64))
        assert (y.shape, y.dtype, nn.nbytes(saved)) == ((0, 4, 2), "float32", 0)
        complete = []
        assert model.backward(y, saved, on_grad=complete.append).shape == (0, 4)
        assert [p.name for p in complete] == ["2.b", "2.W", "0.W"]

    def test_siamese_has_one_set_of_weights(self):
        body = nn.Linear(3, 2, dtype="float64")
        layer, x = nn.Siamese(body), x_of(4, 2, 3)
        assert len(layer.params) == 2
        y, _ = layer.forward(x)
        np.testing.assert_allclose(y[:, 1], body.forward(x[:, 1])[0], rtol=1e-14)
        with pytest.raises(ValueError, match=r"expected pairs, of shape \(batch, 2, ...\), got \(4, 3, 3\)"):
            layer.forward(x_of(4, 3, 3))

    def test_residual_needs_equal_shapes(self):
        with pytest.raises(ValueError, match=r"cannot add shapes \(2, 4\) \(of the body\) and \(2, 3\)"):
            nn.Residual(nn.Linear(3, 4)).forward(x_of(2, 3, dtype="float32"))
