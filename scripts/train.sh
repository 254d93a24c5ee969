#!/usr/bin/env bash
# Sets up, builds and runs the trainer, on the bundled handwritten digits unless
# --data says otherwise. Arguments are passed on to the program:
# scripts/train.sh --help sets up and builds, too, and then prints its options.
#
#   --processes=N   N processes on this machine, each with one core, or with the
#                   GPU of its number, or with the only GPU that there is,
#                   unless --devices says otherwise
#
# With GPUs it needs nvcc and a libtorch with CUDA, which Debian does not have:
# Python's PyTorch, or the folder of include/ and lib/ that TORCH_ROOT names.
# CUDACXX names another nvcc, PYTHON another Python.
set -euo pipefail
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/processes.sh"

processes=1
arguments=()
for argument in "$@"; do
  case $argument in
  --processes=*) processes=${argument#*=} ;;
  --processes)
    echo "train.sh: --processes: expected --processes=N" >&2
    exit 1
    ;;
  --help | -h | '-?')
    echo "scripts/train.sh takes, beside the trainer's options, which follow:"
    echo "  --processes=N   N processes on this machine"
    arguments+=("$argument")
    ;;
  *) arguments+=("$argument") ;;
  esac
done
[[ $processes =~ ^[1-9][0-9]{0,3}$ ]] || {
  echo "train.sh: --processes: expected 1 to 9999, found \"$processes\"" >&2
  exit 1
}

# Whether to build for GPUs: the driver shows one, or TORCH_ROOT is set, and
# nothing is missing. Sets nvcc and torch.
with_cuda() {
  has_gpu || [[ -n ${TORCH_ROOT:-} ]] || return 1
  nvcc=$(find_nvcc) || {
    say "no nvcc of CUDA 12.1 or later (install it, or set CUDACXX): CPUs only"
    return 1
  }
  torch=$(find_cuda_torch) || {
    say "no libtorch with CUDA (set TORCH_ROOT, or PYTHON): CPUs only"
    return 1
  }
}

build_with_cuda() (
  take_turns
  architectures=()
  if has_gpu; then architectures=(-DCMAKE_CUDA_ARCHITECTURES=native); fi
  # shellcheck disable=SC2046
  cmake $(fresh_for_nvcc "$folder" "$nvcc") -S "$root" -B "$folder" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DSYNCNORM_ENABLE_TESTS=OFF \
    -DCMAKE_CUDA_COMPILER="$nvcc" -DSYNCNORM_ENABLE_CUDA=ON \
    -DSYNCNORM_TORCH_ROOT="$torch" \
    ${architectures[@]+"${architectures[@]}"} >/dev/null
  cmake --build "$folder" -j "$(jobs_for_memory)" --target syncnorm-train \
    -- --quiet
)

"$root/scripts/setup.sh"
if with_cuda; then
  say "building examples/trainer with $nvcc and the libtorch of $torch"
  folder=$root/build/train-cuda
  build_with_cuda
else
  say "building examples/trainer"
  folder=$root/build/cpu
  build cpu syncnorm-train
fi
say "training"
program=$folder/examples/trainer/syncnorm-train
((processes > 1)) || exec "$program" ${arguments[@]+"${arguments[@]}"}
run_several "$processes" "$program" ${arguments[@]+"${arguments[@]}"}
