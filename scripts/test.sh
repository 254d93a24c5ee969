#!/usr/bin/env bash
# Sets up, builds and runs all tests; its last lines are ctest's.
#
#   scripts/test.sh [--quick | --help]
#
#   --quick  formatting and the cpu preset only: no sanitizers, no fuzzing, no
#            linting, no CUDA
#   --help   prints this and stops
#
# On a slow machine those of these five are left out, and named before the last
# tests, that would make all of it take longer than SYNCNORM_TEST_MINUTES
# (default 38; 0: no limit), if each takes what it takes on two cores, and as
# much longer as the build of all took.
set -euo pipefail
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

cuda_tests='kernels.(errors$|cuda_(runtime|faults|large|streams|device_array|suite$|agreement$))'
quick=no
case ${1:-} in
'') ;;
--quick) quick=yes ;;
--help | -h)
  print_head
  exit 0
  ;;
*)
  echo "test: unknown argument '$1'; it takes --quick, --help or nothing" >&2
  exit 2
  ;;
esac
(($# < 2)) || {
  echo "test: unknown argument '$2'; it takes --quick, --help or nothing" >&2
  exit 2
}

minutes_for_all=${SYNCNORM_TEST_MINUTES:-38}
[[ $minutes_for_all =~ ^[0-9]{1,9}$ ]] || {
  echo "test: SYNCNORM_TEST_MINUTES: expected a number of minutes, found" \
    "\"$minutes_for_all\"" >&2
  exit 2
}
minutes_for_all=$((10#$minutes_for_all))

check_format() {
  git -C "$root" rev-parse --git-dir >/dev/null 2>&1 || {
    say "no clone of git: the formatting is not checked"
    return
  }
  say "formatting (clang-format 14)"
  git -C "$root" ls-files '*.hpp' '*.cpp' '*.cu' '*.cuh' |
    (cd "$root" && xargs -r clang-format-14 --dry-run --Werror)
}

# Runs the tests of a label under the sanitizers of PRESET. These make a round
# some twenty times slower; the number of rounds without faults is reduced by
# this factor, the number with faults is not.
sanitize() {
  local preset=$1 label=$2
  say "tests under $preset ($label)"
  build "$preset" "tests-$label"
  (
    cd "$root"
    SYNCNORM_TEST_ROUNDS=50000 \
      ctest --preset "$preset" -L "$label" -j "$(jobs_for_memory)"
  )
}

# A minute of searching for messages, and for files, that are misread.
fuzz() {
  say "fuzzing (clang 14)"
  build fuzz fuzz
  (
    cd "$root"
    SYNCNORM_FUZZ_SECONDS=${SYNCNORM_FUZZ_SECONDS:-60} \
      ctest --preset fuzz -L fuzz -j 2
  )
}

compile_cuda() {
  local nvcc
  nvcc=$(find_nvcc) || {
    say "no nvcc of CUDA 12.1 or later: the CUDA code is not compiled"
    return
  }
  say "compiling all CUDA code with $nvcc"
  # shellcheck disable=SC2046
  build cuda-compile $(fresh_for_nvcc "$root/build/cuda-compile" "$nvcc") \
    -DCMAKE_CUDA_COMPILER="$nvcc" tests-gpu bench_cuda_kernels \
    test_kernels_errors test_kernels_cuda_runtime test_kernels_cuda_faults
  (cd "$root" && ctest --preset cuda-compile -R "$cuda_tests")
}

# Minutes that all tests and a build of everything take on two cores.
tests_minutes=10
build_minutes=12
# This machine's time in percent of that on two cores, as far as is known.
slowness=100
left_out=()

build_all() {
  local begin=$SECONDS fresh=yes
  [[ ! -d $root/build/cpu ]] || fresh=no
  say "building all, optimized, warnings as errors"
  build cpu
  local percent=$(((SECONDS - begin) * 100 / (60 * build_minutes)))
  # The time for what an earlier build left to do tells nothing.
  [[ $fresh == no ]] || ((percent <= slowness)) || slowness=$percent
}

# stage NAME MINUTES COMMAND...: runs COMMAND, which takes MINUTES, if there is
# time left for it.
stage() {
  local name=$1 minutes=$2 limit=$minutes_for_all left
  shift 2
  left=$((60 * limit - SECONDS))
  if ((limit > 0 && left * 100 < 60 * (minutes + tests_minutes) * slowness)); then
    left_out+=("$name")
    return
  fi
  "$@"
}

"$root/scripts/setup.sh"
check_format
build_all
if [[ $quick == no ]]; then
  stage fuzz 4 fuzz
  stage cuda 4 compile_cuda
  stage tsan 9 sanitize tsan actors
  stage lint 5 "$root/scripts/lint.sh"
  stage asan-ubsan 11 sanitize asan-ubsan actors
fi
say "all tests (after $((SECONDS / 60)) min)"
((${#left_out[@]} == 0)) ||
  echo "left out, for it took too long: ${left_out[*]}"
cd "$root"
exec ctest --preset cpu -j "$(jobs_for_memory)"
