"""A checkpoint loads in Python's torch under BatchNorm's usual names, and the
model that Python builds of it classifies the held-out images as the trainer
does.

  python_torch.py SYNCNORM_TRAIN EVALUATE DATA

Without Python's torch (Debian: python3-torch) it ends with 77: skipped.
"""
import re
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as reason:
    print(f"skipped: {reason}")
    sys.exit(77)

TRAIN, EVALUATE, DATA = sys.argv[1:]
STEPS = 2 * 23  # of 64 images, the last one less, in two epochs of 1437


def output_of(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, timeout=120,
                            text=True, check=True)
    return result.stdout


def train(folder, *options):
    output_of(TRAIN, "--devices=cpu*2", "--epochs=2",
              f"--checkpoint={folder}", *options)
    return f"{folder}/checkpoint.pt"


def require(found, expected, what):
    if found != expected:
        sys.exit(f"{what}: expected {expected}, found {found}")


def check_norm(state, name, channels):
    shapes = {"weight": [channels], "bias": [channels],
              "running_mean": [channels], "running_var": [channels],
              "num_batches_tracked": []}
    found = {key.split(".")[-1]: list(value.shape)
             for key, value in state.items() if key.startswith(name + ".")}
    require(found, shapes, f"shapes of {name}")
    require(int(state[name + ".num_batches_tracked"]), STEPS,
            name + ".num_batches_tracked")
    require(bool((state[name + ".running_var"] > 0).all()), True,
            f"whether {name}.running_var is positive")


def check_names(folder, model, norms):
    checkpoint = train(folder, f"--model={model}")
    state = torch.jit.load(checkpoint).state_dict()
    for name, channels in norms.items():
        check_norm(state, name, channels)


def check_accuracy(folder, precision):
    checkpoint = train(folder, f"--precision={precision}")
    state = torch.jit.load(checkpoint).state_dict()
    for name, channels in {"norm1": 16, "norm2": 32, "norm3": 64}.items():
        check_norm(state, name, channels)
    line = re.compile(r"held-out accuracy .* \((\d+) of 360\), loss (\S+)\n")
    ours = line.fullmatch(output_of(TRAIN, f"--eval={checkpoint}"))
    theirs = line.fullmatch(output_of(sys.executable, EVALUATE, checkpoint,
                                      DATA))
    # As many hits: the scores differ by rounding alone.
    require(theirs[1], ours[1], f"hits of {precision}")
    # The same layers by other kernels; the text has six digits.
    difference = abs(float(theirs[2]) - float(ours[2]))
    allowed = 1e-4 * float(ours[2]) if precision == "f32" else 2e-6
    require(difference <= allowed, True,
            f"whether losses {theirs[2]} and {ours[2]} are equal")
    print(f"{precision}: {ours[1]} of 360, losses {ours[2]} and {theirs[2]}")


for number, (check, arguments) in enumerate([
        (check_accuracy, ["f32"]),
        (check_accuracy, ["f64"]),
        (check_names, ["mlp", {"norm1": 128, "norm2": 64}]),
        (check_names, ["resnet", {"norm1": 16, "block1.norm1": 16,
                                  "block2.projection_norm": 32,
                                  "block3.norm2": 64}])]):
    with tempfile.TemporaryDirectory() as folder:
        check(folder, *arguments)
