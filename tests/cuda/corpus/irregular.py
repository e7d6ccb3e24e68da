"""Launches of irregular.cu."""

import numpy as np

from . import f32, floats, i32, launch, u32, zeros

FILE = "irregular.cu"
rng = np.random.default_rng(0)
NODES = 100
DEGREE = rng.integers(0, 5, NODES)
EDGES = rng.integers(0, NODES, DEGREE.sum()).astype(i32)
START = np.concatenate([[0], np.cumsum(DEGREE)]).astype(i32)
X = rng.integers(0, 1000, 500).astype(i32)


@launch(FILE, warnings=["same-value"] * 2)
def bfs_visit():
    nodes = np.stack([START[:-1], DEGREE], 1).astype(i32)
    mask, visited = np.arange(NODES) % 3 == 0, np.arange(NODES) % 5 == 0
    cost = np.full(NODES, 7, i32)
    reached = np.zeros(NODES, bool)
    for node in np.flatnonzero(mask):
        reached[EDGES[START[node] : START[node + 1]]] = True
    reached &= ~visited
    visited[mask] = True  # else the cost of a node is read and written at once
    reached &= ~visited
    args = (nodes, EDGES, mask.copy(), np.zeros(NODES, bool), visited, cost.copy(), i32(NODES))
    return (2,), (64,), args, {2: 0 * mask, 3: reached, 5: np.where(reached, 8, 7)}


@launch(FILE, warnings=["same-value"])
def bfs_advance():
    updating = np.arange(NODES) % 3 == 0
    args = (zeros(NODES, dtype=bool), updating.copy(), zeros(NODES, dtype=bool), zeros(1, dtype=bool), i32(NODES))
    return (2,), (64,), args, {0: updating, 1: 0 * updating, 2: updating, 3: [True]}


def csr(dtype):
    data, x = floats(EDGES.size).astype(dtype), floats(NODES, seed=1).astype(dtype)
    dense = np.zeros((NODES, NODES), dtype)
    np.add.at(dense, (np.repeat(np.arange(NODES), DEGREE), EDGES), data)
    return data, x, dense @ x


@launch(FILE)
def spmv_csr():
    data, x, want = csr(float)
    return (2,), (64,), (i32(NODES), START, EDGES, data, x, np.ones(NODES)), {5: want + 1}


@launch(FILE, "spmv_csr_vector<4>")
def spmv_csr_vector():
    data, x, want = csr(f32)
    return (7,), (64,), (i32(NODES), START, EDGES, data, x, zeros(NODES)), {5: want}


@launch(FILE)
def spmv_ell():
    columns, values, x = rng.integers(-1, 30, (4, 40)).astype(i32), floats(4, 40), floats(30, seed=1)
    want = np.where(columns >= 0, values * x[columns], 0).sum(0)
    return (2,), (32,), (i32(40), i32(4), columns, values, x, zeros(40)), {5: want}


@launch(FILE)
def nearest():
    places = floats(100, 2)
    want = np.hypot(places[:, 0] - 1, places[:, 1] - 2)
    return (1, 2), (64,), (places, zeros(100), i32(100), f32(1), f32(2)), {1: want}


@launch(FILE)
def kmeans_assign():
    points, clusters = floats(3, 100), floats(4, 3, seed=1)
    want = ((points.T[:, None] - clusters) ** 2).sum(2).argmin(1)
    return (2,), (64,), (points, clusters, i32(100), i32(4), i32(3), zeros(100, dtype=i32)), {5: want}


@launch(FILE)
def eliminate_factors():
    a, want = floats(20, 20), zeros(20, 20)
    want[4:, 3] = a[4:, 3] / a[3, 3]
    return (1,), (32,), (zeros(20, 20), a, i32(20), i32(3)), {0: want}


@launch(FILE, atol=1e-4)
def eliminate_rows():
    a, m, b = floats(20, 20), floats(20, 20, seed=1), floats(20, seed=2)
    want, right = a.copy(), b.copy()
    want[4:, 3:] -= np.outer(m[4:, 3], a[3, 3:])
    right[4:] -= m[4:, 3] * b[3]
    return (3, 3), (8, 8), (m, a.copy(), b.copy(), i32(20), i32(3)), {1: want, 2: right}


@launch(FILE, atol=1e-4)
def lu_diagonal():
    a = floats(20, 20) + 8 * np.eye(20, dtype=f32)
    want = a.astype(float)
    for k in range(16):
        want[k + 1 : 16, k] /= want[k, k]
        want[k + 1 : 16, k + 1 : 16] -= np.outer(want[k + 1 : 16, k], want[k, k + 1 : 16])
    return (1,), (16,), (a.copy(), i32(20), i32(0)), {0: want}


@launch(FILE)
def align():
    similarity = rng.integers(-5, 6, (16, 16)).astype(i32)
    score = np.zeros((17, 17), int)
    score[0], score[:, 0] = -3 * np.arange(17), -3 * np.arange(17)
    for i in range(16):
        for j in range(16):
            score[i + 1, j + 1] = max(score[i, j] + similarity[i, j], score[i + 1, j] - 3, score[i, j + 1] - 3)
    return (1,), (16,), (similarity, zeros(16, 16, dtype=i32), i32(16), i32(3)), {1: score[1:, 1:]}


@launch(FILE, shared_mem=32 * 16, atol=1e-3, rtol=1e-3)
def nbody():
    bodies = np.abs(floats(50, 4))
    r = bodies[None, :, :3] - bodies[:, None, :3]
    want = (r * (bodies[:, 3] * ((r * r).sum(2) + 0.1) ** -1.5)[..., None]).sum(1)
    return (2,), (32,), (bodies, zeros(50, 3), i32(50), f32(0.1)), {1: want}


@launch(FILE, constants={"ck": floats(16, 4, seed=3)}, atol=1e-3)
def mri_q():
    k, x, q = floats(16, 4, seed=3), floats(3, 64), floats(2, 64, seed=1)
    angle = 2 * np.pi * (k[:11, :3] @ x)
    want = [q[0] + k[:11, 3] @ np.cos(angle), q[1] + k[:11, 3] @ np.sin(angle)]
    return (2,), (32,), (i32(11), *x.copy(), *q.copy()), {4: want[0], 5: want[1]}


@launch(FILE)
def search_sorted():
    keys, ordered = X[:200], np.sort(X)
    args = (keys, ordered, zeros(200, dtype=i32), i32(200), i32(500))
    return (2,), (64,), args, {2: np.searchsorted(ordered, keys)}


@launch(FILE)
def hash_insert():
    keys = np.unique(X[:60]).astype(u32)
    slots = np.full(128, 0xFFFFFFFF, u32)
    want = slots.copy()
    for key in keys:  # threads take turns in order
        at = int(key) * 2654435761 % 2**32 % 128
        while want[at] != 0xFFFFFFFF:
            at = (at + 1) % 128
        want[at] = key
    return (1,), (64,), (slots, keys, i32(keys.size), u32(128)), {0: want}


@launch(FILE)
def floyd_warshall():
    d = rng.integers(1, 100, (20, 20)).astype(i32)
    want = np.minimum(d, d[:, 3:4] + d[3:4])
    want[3], want[:, 3] = d[3], d[:, 3]
    return (1, 20), (32,), (d.copy(), i32(20), i32(3)), {0: want}


@launch(FILE)
def backprop_layer():
    x, w = floats(33), floats(33, 17, seed=1)
    want = np.stack([x[1 + b : 17 + b] @ w[1 + b : 17 + b, 1:] for b in (0, 16)])
    return (1, 2), (16, 16), (x, zeros(2, 16), w, i32(16)), {1: want}
