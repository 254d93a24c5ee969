#!/usr/bin/env bash
# Runs clang-tidy 14 with the checks of .clang-tidy over the library's sources
# (kernels and actors), as the cpu preset compiles them.
#
#   scripts/lint.sh [SOURCE...]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

say "linting (clang-tidy 14)"
cd "$root"
# Clang cannot read the precompiled headers of g++.
cmake --preset cpu -B build/lint -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
if [[ $# -gt 0 ]]; then
  sources=("$@")
else
  mapfile -t sources < <(git ls-files 'kernels/*.cpp' 'actors/*.cpp' \
    ':!actors/nn/*')
fi
printf '%s\n' "${sources[@]}" |
  xargs -P "$(jobs_for_memory)" -n 1 clang-tidy-14 --quiet -p build/lint \
    --extra-arg=-Wno-unknown-warning-option
