#!/usr/bin/python3
"""Held-out accuracy of a checkpoint of the cnn, by Python's torch alone.

  evaluate.py CHECKPOINT DATA

Prints what `syncnorm-train --eval=CHECKPOINT --data=DATA` prints, but for
rounding of the loss: of a run with --precision=bf16 it differs in the fifth
digit, as this computes in float32, the type of the weights. DATA is a folder of
IDX files that are not packed. Debian's package python3-torch will do.
"""
import sys

import numpy
import torch
from torch import nn


# begin: model
class Cnn(nn.Module):
    """The trainer's cnn with plain batch norm, under the same names."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(16)
        self.norm2 = nn.BatchNorm2d(32)
        self.norm3 = nn.BatchNorm2d(64)
        self.output = nn.Linear(256, 10)

    def forward(self, x):
        x = self.norm1(self.conv1(x)).relu()
        x = self.norm2(self.conv2(x)).relu()
        x = nn.functional.max_pool2d(x, 2)
        x = self.norm3(self.conv3(x)).relu()
        x = nn.functional.max_pool2d(x, 2)
        return self.output(
            nn.functional.adaptive_avg_pool2d(x, 2).flatten(1))


def load_model(checkpoint):
    state = torch.jit.load(checkpoint).state_dict()
    # What the trainer keeps beside the model, to go on from.
    state = {name: value for name, value in state.items()
             if not name.startswith("syncnorm.")}
    model = Cnn().to(state["output.weight"].dtype)
    model.load_state_dict(state)
    return model.eval()
# end: model


def read_idx(path):
    """The array of an IDX file of bytes."""
    data = numpy.fromfile(path, dtype=numpy.uint8)
    if data[:3].tolist() != [0, 0, 8]:
        sys.exit(f"{path}: expected an IDX file of bytes")
    end = 4 + 4 * data[3]
    shape = data[4:end].view(">u4").astype(int)
    return data[end:].reshape(shape)


def main(checkpoint, folder):
    training = read_idx(f"{folder}/train-images-idx3-ubyte")
    images = read_idx(f"{folder}/t10k-images-idx3-ubyte")
    labels = torch.tensor(read_idx(f"{folder}/t10k-labels-idx1-ubyte")).long()
    # Images of one grey value have no deviation.
    images = (images - training.mean()) / (training.std() or 1.0)

    model = load_model(checkpoint)
    with torch.no_grad():
        inputs = torch.tensor(images).unsqueeze(1)
        scores = model(inputs.to(model.output.weight.dtype))
    correct = int((scores.argmax(1) == labels).sum())
    loss = float(nn.functional.cross_entropy(scores.double(), labels))
    print(f"held-out accuracy {100 * correct / len(labels):.2f} % "
          f"({correct} of {len(labels)}), loss {loss:.6f}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, KeyError, ValueError, RuntimeError) as reason:
        sys.exit(f"{sys.argv[1]}, {sys.argv[2]}: {reason}")
