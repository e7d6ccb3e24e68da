"""Fewer bytes: weights that share a few values."""

import numpy as np
import pytest

from distlearn import nn


class TestCluster:
    @pytest.mark.parametrize(("clusters", "bits"), [(2, 1), (3, 2), (4, 2), (16, 4), (17, 8), (256, 8)])
    def test_few_values_in_few_bits(self, clusters, bits):
        x = np.random.default_rng(0).normal(size=(37, 11)).astype("float32")
        c = nn.cluster(x, clusters)
        assert (c.bits, c.shape, len(c.codebook)) == (bits, x.shape, clusters)
        assert c.codes.nbytes == -(-x.size * bits // 8)
        assert c.nbytes == c.codes.nbytes + 4 * clusters
        restored = c.restore()
        assert restored.dtype == np.float32
        assert len(np.unique(restored)) <= clusters
        nearest = np.abs(x.reshape(-1, 1) - c.codebook).min(axis=1)
        np.testing.assert_allclose(np.abs(restored - x).ravel(), nearest, atol=1e-6)

    def test_it_is_k_means(self, monkeypatch):
        """At the end every value is the mean of its cluster, and no value is nearer to another's."""
        monkeypatch.setattr("distlearn.nn.compression.ROUNDS", 1000)
        x = np.random.default_rng(0).normal(size=2000)
        c = nn.cluster(x, 8)
        nearest = np.abs(x[:, None] - c.codebook).argmin(axis=1)
        np.testing.assert_allclose(c.codebook, [x[nearest == k].mean() for k in range(8)], rtol=1e-9)

    def test_more_values_lose_less(self):
        x = np.random.default_rng(0).normal(size=5000)
        errors = [np.square(nn.cluster(x, k).restore() - x).mean() for k in (2, 4, 16, 64)]
        assert errors == sorted(errors, reverse=True)
        assert errors[2] < 0.015  # the best 16 levels for a normal distribution give 0.0095 (Max, 1960)

    def test_edges(self):
        np.testing.assert_array_equal(nn.cluster(np.full((2, 3), 7.0), 4).restore(), 7.0)
        with pytest.raises(ValueError, match="clusters is 1"):
            nn.cluster(np.ones(3), 1)
        with pytest.raises(ValueError, match=r"clusters is 4\.5, expected a whole number of 2 or more and up to 256"):
            nn.cluster(np.ones(3), 4.5)
        for x in (np.ones(0), np.arange(3), np.array([0, np.nan]), np.array([-np.inf, 0])):  # centres are means
            with pytest.raises(ValueError, match=r"x is array\(.*expected finite floating-point numbers"):
                nn.cluster(x)
