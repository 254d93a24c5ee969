#!/usr/bin/env bash
# Builds, tests and measures the CUDA kernels on a machine with a GPU.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'TEXT'
usage: scripts/gpu-check.sh [options]

On a machine with a GPU, the CUDA toolkit and a C++ compiler, but no package
registry: builds syncnorm for that GPU (with the actors, if CAF is found, and
without the examples), runs their tests (but those of the Debian packages), those
of the libtorch component on GPUs too where there is a libtorch with CUDA, runs
the GPU tests under compute-sanitizer where it is installed, and prints the table
of the CUDA benchmark last.

  --deps DIR   the packages that scripts/offline-deps.sh left in DIR; they are
               unpacked below the build folder. Without: what is installed,
               for the tests with the program openssl.
  --kernels    leaves out the actors, which take most of the time to build
  --build DIR  build folder (default: build/gpu-check)
  --no-gpu     for a machine without a GPU: builds the same, shows the GPU
               tests as Skipped, leaves out compute-sanitizer and benchmark
  --help       prints this

Exits with 0 if all was built and passed, 1 if not. On a machine with a GPU a
skipped GPU test is a failure, and so is a tool of compute-sanitizer that is not
done after SYNCNORM_SANITIZER_SECONDS (default 300). Benchmark goals that are
missed are shown in the table and in DIR/cuda_kernels.json and do not fail the
run.
Environment: CUDACXX names nvcc; TORCH_ROOT the folder of include/ and lib/ of a
libtorch with CUDA, or PYTHON the Python whose PyTorch that is (default python3;
none found, or --no-gpu without TORCH_ROOT: no comparison, no component).
TEXT
}

fail() {
  printf 'gpu-check.sh: %s\n' "$*" >&2
  exit 1
}

step() {
  printf '\n== %s (after %d s)\n' "$*" "$SECONDS"
}

deps=
build=build/gpu-check
gpu=true
actors=(-U SYNCNORM_ENABLE_ACTORS) # not what an earlier run has left there
while (($# > 0)); do
  case $1 in
    --help)
      usage
      exit 0
      ;;
    --no-gpu) gpu=false ;;
    --kernels) actors=(-DSYNCNORM_ENABLE_ACTORS=OFF) ;;
    --deps | --build)
      (($# > 1)) || fail "$1 needs a folder (see --help)"
      if [[ $1 == --deps ]]; then deps=$2; else build=$2; fi
      shift
      ;;
    *) fail "unknown argument $1 (see --help)" ;;
  esac
  shift
done

if [[ -n $deps ]]; then
  [[ -d $deps ]] || fail "--deps: $deps is no folder"
  deps=$(cd "$deps" && pwd)
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p "$build"
build=$(cd "$build" && pwd)

# -- packages -----------------------------------------------------------------

prefix=
runtime=
if [[ -n $deps ]]; then
  step "packages of $deps"
  compgen -G "$deps/*.deb" > /dev/null || fail "--deps: no .deb file in $deps"
  command -v dpkg > /dev/null || fail "dpkg is not here to unpack packages"
  prefix=$build/deps
  rm -rf "$prefix"
  mkdir -p "$prefix"
  for archive in "$deps"/*.deb; do
    dpkg -x "$archive" "$prefix"
  done
  runtime=$prefix/runtime
  mkdir -p "$runtime"
  find "$prefix/usr/lib" -name 'lib*.so*' \
    -regex '.*/lib\(fmt\|hwy\|caf_\|benchmark\)[^/]*' \
    -exec ln -s {} "$runtime" \;
  # Debian's doctest says /usr, and some of OpenSSL's headers stand in a folder of
  # the architecture, where only the system's own compiler looks.
  headers=$prefix/usr/include
  export CPLUS_INCLUDE_PATH="$headers:$headers/x86_64-linux-gnu${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}"
  # Also for the projects that tests configure.
  export CMAKE_PREFIX_PATH="$prefix/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}"
  printf 'unpacked into %s\n' "$prefix"
fi

with_path() {
  local path=$1
  shift
  LD_LIBRARY_PATH="$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
}

# Runs a program of the unpacked packages, which needs all of their libraries.
with_packages() {
  with_path "$prefix/usr/lib/x86_64-linux-gnu:$prefix/lib/x86_64-linux-gnu" "$@"
}

# Runs a program of ours, or one of the machine's that starts ours: with no
# more of the packages' libraries than ours are linked with.
with_libraries() {
  if [[ -n $runtime ]]; then with_path "$runtime" "$@"; else "$@"; fi
}

# -- tools --------------------------------------------------------------------

# Prints the path of a tool: the machine's own, or that of the packages.
find_tool() {
  command -v "$1" && return
  [[ -n $prefix && -x $prefix/usr/bin/$1 ]] && printf '%s\n' "$prefix/usr/bin/$1"
}

recent_cmake() {
  at_least 3.25 \
    "$("$1" --version 2> /dev/null | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')"
}

step "tools"
nvcc=$(find_nvcc) || fail "no nvcc of CUDA 12.1 or later; set CUDACXX"
ninja=$(find_tool ninja) \
  || fail "no ninja; collect it with offline-deps.sh"
run_ninja=("$ninja")
cmake=$(command -v cmake || true)
run_cmake=("$cmake")
ctest=(ctest)
if [[ -z $cmake ]] || ! recent_cmake "$cmake"; then
  cmake=$prefix/usr/bin/cmake
  [[ -n $prefix && -x $cmake ]] \
    || fail "no CMake of 3.25 or later; collect it with offline-deps.sh"
  run_cmake=(with_packages "$cmake")
  ctest=(with_packages "$prefix/usr/bin/ctest")
  run_ninja=(with_packages "$ninja")
fi
printf 'nvcc   %s, %s\n' "$nvcc" "$(release_of "$nvcc")"
printf 'cmake  %s\nninja  %s\nc++    %s\n' "$cmake" "$ninja" \
  "$(c++ --version | head -1)"

# A test makes certificates.
if [[ -n $prefix ]] && ! command -v openssl > /dev/null; then
  PATH=$PATH:$prefix/usr/bin
  export OPENSSL_CONF=$prefix/etc/ssl/openssl.cnf
fi

architecture=90-real
torch_root=${TORCH_ROOT:-}
if $gpu; then
  command -v nvidia-smi > /dev/null || fail "no nvidia-smi; see --no-gpu"
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader \
    | head -1) || fail "nvidia-smi shows no GPU; see --no-gpu"
  [[ $capability =~ ^[0-9]+\.[0-9]+$ ]] \
    || fail "nvidia-smi gives no compute capability: $capability"
  architecture=${capability/./}-real
  printf 'gpu    %s\n' \
    "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -1)"
  torch_root=$(find_cuda_torch || true)
fi
printf 'torch  %s\n' "${torch_root:-none with CUDA: no comparison, no component}"

# -- build --------------------------------------------------------------------

# configure ROOT-OF-THE-COMPARISON [OPTION...]
configure() {
  local peer=$1
  shift
  "${run_cmake[@]}" -S . -B "$build" -G Ninja \
    -DCMAKE_MAKE_PROGRAM="$ninja" \
    -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CUDA_COMPILER="$nvcc" \
    -DCMAKE_CUDA_ARCHITECTURES="$architecture" \
    -DSYNCNORM_ENABLE_CUDA=ON \
    -DSYNCNORM_ENABLE_TORCH=OFF \
    -DSYNCNORM_ENABLE_EXAMPLES=OFF \
    -DSYNCNORM_ENABLE_BENCH=ON \
    -DSYNCNORM_TORCH_ROOT= \
    -DSYNCNORM_BENCH_TORCH_ROOT="$peer" "${actors[@]}" \
    "$@" > "$build/configure.log" 2>&1 \
    || { tail -30 "$build/configure.log" >&2; fail "CMake failed"; }
}

compile() {
  "${run_ninja[@]}" -C "$build" "$@" > "$build/build.log" 2>&1
}

step "build for compute capability $architecture"
configure "$torch_root"
if [[ -n $torch_root ]] && ! compile bench_cuda_kernels; then
  grep -m5 -E 'error|undefined' "$build/build.log" || true
  echo "the comparison with libtorch does not build here: left out"
  configure ""
fi
compile || { tail -40 "$build/build.log" >&2; fail "the build failed"; }
grep -E '^SYNCNORM_ENABLE_(ACTORS|CUDA):' "$build/CMakeCache.txt"

# -- tests --------------------------------------------------------------------

failed=()

step "tests"
with_libraries "${ctest[@]}" --test-dir "$build" --output-on-failure \
  --exclude-regex '^package\.' --no-tests=error -j "$(nproc)" \
  | tee "$build/ctest.log" || failed+=("tests")

if $gpu; then
  # Other tests may be skipped, for lack of memory.
  gpu_tests=$("${ctest[@]}" --test-dir "$build" --show-only -L '^gpu$' \
    | sed -n 's/^ *Test *#[0-9]*: //p')
  [[ -n $gpu_tests ]] || failed+=("there are no GPU tests")
  for name in $gpu_tests; do
    if grep -q "Test *#[0-9]*: ${name//./\\.} .*\*\*\*Skipped" "$build/ctest.log"; then
      failed+=("$name was skipped")
    fi
  done
fi

# The libtorch component on GPUs, in the same build folder.
check_component() {
  local status=0
  configure "" -DSYNCNORM_ENABLE_TORCH=ON -DSYNCNORM_TORCH_ROOT="$torch_root" \
    -DSYNCNORM_ENABLE_BENCH=OFF
  if ! compile test_nn_cuda; then
    grep -m5 -E 'error|undefined' "$build/build.log" || true
    failed+=("the libtorch component does not build")
    return
  fi
  with_libraries timeout 300 "$build/tests/nn/test_nn_cuda" || status=$?
  case $status in
    0) ;;
    77) if $gpu; then failed+=("the libtorch component saw no GPU"); fi ;;
    *) failed+=("the libtorch component") ;;
  esac
}

if [[ -n $torch_root ]]; then
  step "libtorch component"
  if grep -q '^SYNCNORM_ENABLE_ACTORS:BOOL=ON' "$build/CMakeCache.txt"; then
    check_component
  else
    echo "it needs CAF: left out"
  fi
fi

# Runs a test program under one tool of compute-sanitizer.
sanitize() {
  local tool=$1 seconds=${SYNCNORM_SANITIZER_SECONDS:-300} status=0
  shift
  with_libraries timeout "$seconds" "$sanitizer" --tool "$tool" \
    --error-exitcode 9 "$@" > "$build/$tool.log" 2>&1 || status=$?
  tail -3 "$build/$tool.log"
  case $status in
    0) printf '%s: clean\n' "$tool" ;;
    124) failed+=("compute-sanitizer $tool: not finished within $seconds s") ;;
    *) failed+=("compute-sanitizer $tool") ;;
  esac
}

if $gpu; then
  # Shown at once, too: what comes after it may take longer than one has.
  step "benchmark"
  with_libraries timeout 180 "$build/bench/cuda_kernels" \
    --summary="$build/cuda_kernels.json" 2>&1 | tee "$build/bench.log" \
    || failed+=("benchmark")
  if sanitizer=$(command -v compute-sanitizer "${nvcc%/*}/compute-sanitizer"); then
    sanitizer=$(head -1 <<< "$sanitizer")
    step "compute-sanitizer"
    sanitize memcheck "$build/tests/kernels/test_kernels_cuda_suite"
    sanitize racecheck "$build/tests/kernels/test_kernels_cuda_streams"
  else
    echo "no compute-sanitizer here"
  fi
fi

step "result"
for what in "${failed[@]}"; do
  printf 'FAILED: %s\n' "$what"
done
((${#failed[@]} > 0)) || printf 'all passed\n'
if $gpu; then
  cat "$build/bench.log"
fi
((${#failed[@]} == 0))
