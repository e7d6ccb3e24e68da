"""Predict: python predict.py IMAGES.npy PREDICTIONS.csv; a label for each image, in the same order."""

import sys
from pathlib import Path

import numpy as np

model = np.load(Path(__file__).with_name("weights.npz"))
x = np.load(sys.argv[1])
x = np.c_[(x.reshape(len(x), -1) - model["shift"]) / model["scale"], np.ones(len(x))]
Path(sys.argv[2]).write_text("".join(f"{label}\n" for label in (x @ model["w"]).argmax(axis=1)))
