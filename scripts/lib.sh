# Sourced by the scripts beside it: where the repository is, and how many jobs
# this machine's memory allows. A file that includes libtorch takes more than 1
# GB to compile.
# shellcheck shell=bash

# cd would look for folders there.
unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Prints how many cores this process may use; nproc by itself would obey
# OpenMP's variables.
usable_cores() {
  env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc
}

# Files that say how many bytes of memory a container may take.
memory_limits=(/sys/fs/cgroup/memory.max
  /sys/fs/cgroup/memory/memory.limit_in_bytes)

# Prints how many compilers may run at a time: each takes 1.8 GB at most.
jobs_for_memory() {
  local cores available limit
  cores=$(usable_cores)
  available=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
  while read -r limit; do
    limit=$((limit >> 20))
    ((available < limit)) || available=$limit
  done < <(cat "${memory_limits[@]}" 2>/dev/null | grep -E '^[0-9]{1,18}$')
  available=$((available / 1792))
  ((available >= 1)) || available=1
  echo $((cores < available ? cores : available))
}

# Prints the comment at the head of the script that was started, for --help.
print_head() {
  sed -n '2,/^[^#]/{s/^# \{0,1\}//p;}' "$0"
}

say() {
  printf '\n== %s\n' "$*"
}

# Waits for other builds in this clone, in another shell or on another machine
# that shares it; others then wait until this shell ends.
take_turns() {
  mkdir -p "$root/build"
  exec 9>"$root/build/.lock"
  flock --nonblock 9 || {
    say "waiting for another build in $root"
    flock 9
  }
}

# build PRESET [-OPTION...] [TARGET...]: configures a preset of CMakePresets.json,
# with the options, and builds it.
build() {
  local preset=$1 options=()
  shift
  while [[ ${1:-} == -* ]]; do
    options+=("$1")
    shift
  done
  (
    cd "$root"
    take_turns
    cmake --preset "$preset" ${options[@]+"${options[@]}"} >/dev/null
    cmake --build --preset "$preset" -j "$(jobs_for_memory)" \
      ${1:+--target "$@"} -- --quiet
  )
}

# at_least VERSION OTHER: tells whether OTHER is that version or a later one.
at_least() {
  [[ -n $2 ]] && printf '%s\n%s\n' "$1" "$2" | sort --check=quiet --version-sort
}

# Prints the version of an nvcc, such as 13.0.
release_of() {
  "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p'
}

# Prints the path of an nvcc of CUDA 12.1 or later: $CUDACXX, or where it usually
# is.
find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" nvcc /usr/local/cuda/bin/nvcc; do
    [[ -n $candidate ]] && at_least 12.1 "$(release_of "$candidate")" \
      && command -v "$candidate" && return
  done
  return 1
}

# Prints --fresh if the build folder FOLDER was configured with another nvcc
# than NVCC: CMake would then forget all other options, even those that it is
# given.
fresh_for_nvcc() {
  local earlier
  earlier=$(sed -n 's/^CMAKE_CUDA_COMPILER:[^=]*=//p' "$1/CMakeCache.txt" \
    2>/dev/null || true)
  [[ -z $earlier || $earlier == "$2" ]] || echo --fresh
}

# Prints the folder with include/ and lib/ of a libtorch with CUDA: $TORCH_ROOT,
# or the one in the PyTorch of $PYTHON (default: python3).
find_cuda_torch() {
  if [[ -n ${TORCH_ROOT:-} ]]; then
    echo "$TORCH_ROOT"
    return
  fi
  "${PYTHON:-python3}" -c '
import os, torch
assert torch.version.cuda
print(os.path.dirname(torch.__file__))' 2>/dev/null
}

# Tells whether the driver shows a GPU.
has_gpu() {
  [[ -n $(nvidia-smi --list-gpus 2>/dev/null) ]]
}
