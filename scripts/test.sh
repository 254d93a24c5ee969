#!/usr/bin/env bash
# Sets up, builds and runs all tests; its last lines are ctest's.
#
#   scripts/test.sh [--quick]
#
#   --quick  formatting and the cpu preset only: no sanitizers, no fuzzing, no
#            linting, no CUDA
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cuda_tests='kernels.cuda_(runtime|large|streams|suite$|agreement$)'
quick=no
case ${1:-} in
'') ;;
--quick) quick=yes ;;
*)
  echo "test: unknown argument '$1'; it takes --quick or nothing" >&2
  exit 2
  ;;
esac

check_format() {
  say "formatting (clang-format 14)"
  git -C "$root" ls-files '*.hpp' '*.cpp' '*.cu' '*.cuh' |
    (cd "$root" && xargs clang-format-14 --dry-run --Werror)
}

# Runs the tests of a label under the sanitizers of PRESET. They make a round
# some twenty times slower; the number of rounds without a fault is cut by as
# much, the number with faults is not.
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

# A minute of looking for messages and files that are misread, each program half
# of it.
fuzz() {
  say "fuzzing (clang 14)"
  build fuzz fuzz
  (
    cd "$root"
    SYNCNORM_FUZZ_SECONDS=${SYNCNORM_FUZZ_SECONDS:-30} \
      ctest --preset fuzz -L fuzz
  )
}

compile_cuda() {
  if ! command -v nvcc >/dev/null; then
    say "no nvcc: the CUDA code is not compiled"
    return
  fi
  say "compiling all CUDA code"
  build cuda tests-gpu test_kernels_cuda_runtime
  (cd "$root" && ctest --preset cuda -R "$cuda_tests")
}

"$root/scripts/setup.sh"
check_format
if [[ $quick == no ]]; then
  sanitize tsan actors
  sanitize asan-ubsan actors
  fuzz
  compile_cuda
fi
say "all tests, optimized, warnings as errors"
build cpu
[[ $quick == yes ]] || "$root/scripts/lint.sh"
cd "$root"
exec ctest --preset cpu -j "$(jobs_for_memory)"
