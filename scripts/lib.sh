# Sourced by the scripts beside it: where the repository is, and how many jobs
# the memory of this machine bears. A file that includes libtorch takes more
# than 1 GB to compile.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

jobs_for_memory() {
  local cores available
  cores=$(nproc)
  available=$(awk '/^MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo)
  ((available >= 1)) || available=1
  echo $((cores < available ? cores : available))
}

say() {
  printf '\n== %s\n' "$*"
}

# build PRESET [TARGET...]: configures and builds a preset of CMakePresets.json.
build() {
  local preset=$1
  shift
  (
    cd "$root"
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset" -j "$(jobs_for_memory)" \
      ${1:+--target "$@"} -- --quiet
  )
}
