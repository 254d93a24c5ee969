#!/usr/bin/env bash
# Sets up, builds and runs the trainer, on the bundled handwritten digits unless
# --data says otherwise. Arguments are passed on: scripts/train.sh --help
#
#   --processes=N   N processes on this machine, each with one core or its own
#                   GPU unless --devices says otherwise
#
# With GPUs it needs nvcc and a libtorch with CUDA, which Debian does not have:
# Python's PyTorch, or the folder of include/ and lib/ that TORCH_ROOT names.
# CUDACXX names another nvcc, PYTHON another Python.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

processes=1
arguments=()
for argument in "$@"; do
  case $argument in
  --processes=*) processes=${argument#*=} ;;
  *) arguments+=("$argument") ;;
  esac
done
[[ $processes =~ ^[1-9][0-9]{0,3}$ ]] || {
  echo "train.sh: --processes: expected 1 to 9999, found \"$processes\"" >&2
  exit 1
}

free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)); do
    (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

# The variables of a launcher: see docs/trainer.md.
run_several() {
  export MASTER_ADDR=127.0.0.1 MASTER_PORT WORLD_SIZE=$processes
  MASTER_PORT=$(free_port)
  local rank others=() status=0
  for ((rank = 1; rank < processes; ++rank)); do
    RANK=$rank LOCAL_RANK=$rank "$program" "$@" >/dev/null &
    others+=($!)
  done
  # They end with the first one; a stopped one would stay.
  trap 'kill -KILL "${others[@]}" 2>/dev/null || true' EXIT
  RANK=0 LOCAL_RANK=0 "$program" "$@" &
  local first=$!
  # Ctrl-C is for the processes, which then end; by a signal to this script
  # alone, the first one ends the run.
  trap : INT
  trap 'kill -TERM "$first" 2>/dev/null || true' TERM HUP
  # A signal interrupts the waiting.
  while :; do
    wait "$first" && status=0 || status=$?
    kill -0 "$first" 2>/dev/null || break
  done
  return "$status"
}

# Whether to build for GPUs: the driver shows one, or TORCH_ROOT asks for it, and
# nothing is missing. Sets nvcc and torch.
with_cuda() {
  has_gpu || [[ -n ${TORCH_ROOT:-} ]] || return 1
  nvcc=$(find_nvcc) || {
    say "no nvcc (install the CUDA toolkit, or set CUDACXX): CPUs only"
    return 1
  }
  torch=$(find_cuda_torch) || {
    say "no libtorch with CUDA (set TORCH_ROOT, or PYTHON): CPUs only"
    return 1
  }
}

build_with_cuda() {
  local architectures=()
  has_gpu && architectures=(-DCMAKE_CUDA_ARCHITECTURES=native)
  cmake -S "$root" -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DSYNCNORM_ENABLE_TESTS=OFF \
    -DCMAKE_CUDA_COMPILER="$nvcc" -DSYNCNORM_ENABLE_CUDA=ON \
    -DSYNCNORM_TORCH_ROOT="$torch" \
    ${architectures[@]+"${architectures[@]}"} >/dev/null
  cmake --build "$folder" -j "$(jobs_for_memory)" --target syncnorm-train \
    -- --quiet
}

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
run_several ${arguments[@]+"${arguments[@]}"}
