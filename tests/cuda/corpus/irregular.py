"""Launches of irregular.cu."""

import numpy as np

from . import f32, floats, i32, launch, zeros

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
