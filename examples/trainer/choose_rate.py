#!/usr/bin/python3
"""Chooses the defaults of --lr and --weight-decay without a look at the held-out
images: cross-validation inside the training images. They are cut into five
parts as they stand (so that writers stay together), and each part in turn is
tested by a model that was trained on the other four.

  choose_rate.py FOLDER-OF-PROGRAMS DATA-FOLDER [SEEDS [JOBS]]

prints a line for each pair of values, the best one last.
"""

import gzip
import itertools
import os
import re
import statistics
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

RATES = (0.02, 0.05, 0.1, 0.2)
DECAYS = (0, 1e-4, 5e-4, 2e-3)
FOLDS = 5


def read_idx(path):
    # As the trainer does, of a file that is there twice, the plain one.
    packed = not os.path.exists(path) and os.path.exists(path + ".gz")
    with gzip.open(path + ".gz") if packed else open(path, "rb") as file:
        content = file.read()
    sizes = struct.unpack_from(f">{content[3]}I", content, 4)
    start = 4 + 4 * len(sizes)
    width = (len(content) - start) // sizes[0]
    items = [content[start + i * width:][:width] for i in range(sizes[0])]
    return content[:4], sizes[1:], items


def write_idx(path, magic, shape, items):
    with open(path, "wb") as file:
        file.write(magic + struct.pack(f">{1 + len(shape)}I", len(items), *shape))
        file.write(b"".join(items))


def write_fold(folder, data, fold):
    for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
        magic, shape, items = read_idx(f"{data}/train-{kind}")
        begin = fold * len(items) // FOLDS
        end = (fold + 1) * len(items) // FOLDS
        write_idx(f"{folder}/train-{kind}", magic, shape,
                  items[:begin] + items[end:])
        write_idx(f"{folder}/t10k-{kind}", magic, shape, items[begin:end])


def accuracy(program, folder, rate, decay, seed):
    output = subprocess.run(
        [program, f"--data={folder}", "--devices=cpu", f"--lr={rate}",
         f"--weight-decay={decay}", f"--seed={seed}"],
        check=True, capture_output=True, text=True).stdout
    return float(re.search(r"^held-out accuracy ([0-9.]+)", output, re.M)[1])


def main(programs, data, seeds="3", jobs="1"):
    program = os.path.join(programs, "syncnorm-train")
    with tempfile.TemporaryDirectory() as scratch:
        folders = []
        for fold in range(FOLDS):
            folders.append(os.path.join(scratch, str(fold)))
            os.mkdir(folders[-1])
            write_fold(folders[-1], data, fold)
        pairs = list(itertools.product(RATES, DECAYS))
        tries = list(itertools.product(folders, range(1, int(seeds) + 1)))
        with ThreadPoolExecutor(int(jobs)) as pool:
            means = [
                statistics.mean(
                    pool.map(lambda x: accuracy(program, x[0], *pair, x[1]),
                             tries)) for pair in pairs
            ]
        for mean, (rate, decay) in sorted(zip(means, pairs)):
            print(f"lr {rate:<5g} weight decay {decay:<7g} {mean:6.2f} %")


if __name__ == "__main__":
    if not 3 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
