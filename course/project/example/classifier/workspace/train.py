"""Train: python train.py IMAGES.npz, the round's file; writes weights.npz beside this file."""

import sys
from pathlib import Path

import numpy as np

data = np.load(sys.argv[1])
x, y = data["x_train"], data["y_train"]
shift, scale = x.min(), np.ptp(x)
x = np.c_[(x.reshape(len(x), -1) - shift) / scale, np.ones(len(x))]
w = np.zeros((x.shape[1], y.max() + 1))
target = np.eye(w.shape[1])[y]
for _ in range(300):
    p = np.exp(x @ w - (x @ w).max(axis=1, keepdims=True))
    w -= 0.5 * x.T @ (p / p.sum(axis=1, keepdims=True) - target) / len(x)
np.savez(Path(__file__).with_name("weights.npz"), w=w, shift=shift, scale=scale)
