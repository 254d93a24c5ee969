#!/usr/bin/env bash
# Builds, tests and measures the CUDA kernels on a machine with a GPU.
set -euo pipefail
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

usage() {
  cat <<'TEXT'
usage: scripts/gpu-check.sh [options]

On a machine with a GPU, the CUDA toolkit and a C++ compiler, but no package
registry: builds syncnorm for that GPU (with the actors, if CAF is found, and
without the examples), runs the GPU tests, the CUDA benchmark, the GPU tests under
compute-sanitizer where it is installed, the other tests (but those of the Debian
packages), and those of the libtorch component on GPUs where there is a libtorch
with CUDA. Prints what failed, and the table of the benchmark last. What the
steps print in full stands in the build folder.

  --deps DIR     the packages that scripts/offline-deps.sh left in DIR: those of
                 DIR/packages.txt, or all where there is no such file. They are
                 unpacked below the build folder. Without: what is installed,
                 for the tests with the program openssl.
  --kernels      leaves out the actors, which take most of the time to build
  --build DIR    build folder (default: build/gpu-check of the clone)
  --results DIR  copies the logs, the benchmark's summary and, as result.txt,
                 the last lines to DIR, each as its step ends
  --no-gpu       for a machine without a GPU: builds the same, shows the GPU
                 tests as Skipped, leaves out compute-sanitizer and benchmark
  --help         prints this

Exits with 0 if all was built and passed, 1 if not. On a machine with a GPU a
skipped GPU test is a failure, and so is a tool of compute-sanitizer that is not
done after SYNCNORM_SANITIZER_SECONDS (default 90). All is over after
SYNCNORM_GPU_CHECK_SECONDS (default 480; 0, the default with --no-gpu: no limit):
a step that is not done then, or not begun, has failed. The next run goes on with
a build that was not done. Benchmark goals that are missed are shown in the table
and in the build folder's cuda_kernels.json and do not fail the run.
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
results=
build=
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
    --deps | --build | --results)
      (($# > 1)) || fail "$1 needs a folder (see --help)"
      declare "${1#--}=$2"
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
if [[ -n $results ]]; then
  mkdir -p "$results"
  results=$(cd "$results" && pwd)
fi
[[ -n $build ]] || build=$root/build/gpu-check
mkdir -p "$build"
build=$(cd "$build" && pwd)
cd "$root"
for log in build configure ctest-gpu ctest bench memcheck racecheck component; do
  rm -f "$build/$log.log" ${results:+"$results/$log.log"}
done
for file in cuda_kernels.json result.txt; do
  rm -f "$build/$file" ${results:+"$results/$file"}
done

# -- time and results ---------------------------------------------------------

budget=${SYNCNORM_GPU_CHECK_SECONDS:-}
if [[ -z $budget ]]; then
  if $gpu; then budget=480; else budget=0; fi
fi
[[ $budget =~ ^[0-9]+$ ]] || fail "SYNCNORM_GPU_CHECK_SECONDS is no number: $budget"
budget=$((10#$budget))
failed=()

# Prints the seconds left for steps: the last five are reserved for the result.
seconds_left() {
  echo $((budget - 5 - SECONDS))
}

# Prints how long a command may run: MOST seconds, but no longer than the time
# left.
seconds_for() {
  local most=$1 left
  left=$(seconds_left)
  ((left > 0)) || left=1
  echo $((budget == 0 || most < left ? most : left))
}

# limited SECONDS COMMAND...: ends the command after that time, or when this
# script is asked to end.
limited() {
  timeout --kill-after=5 "$@" &
  wait "$!"
}
trap 'kill $(jobs -p) 2> /dev/null; exit 130' INT TERM

# begin STEP: tells whether there is time for it.
begin() {
  if ((budget > 0 && $(seconds_left) < 5)); then
    failed+=("$1: left out for lack of time")
    return 1
  fi
  step "$1"
}

# ended STEP STATUS [WHY]: records a failure according to the exit status.
ended() {
  case $2 in
    0) ;;
    124) failed+=("$1: not done in time, after $SECONDS s") ;;
    137) failed+=("$1: killed, after $SECONDS s") ;;
    *) failed+=("$1${3:+: $3}") ;;
  esac
}

# keep FILE...: copies those of these files that the build folder has to
# --results.
keep() {
  local file
  [[ -n $results ]] || return 0
  for file in "$@"; do
    [[ ! -e $build/$file ]] || cp "$build/$file" "$results/"
  done
}

# -- packages -----------------------------------------------------------------

# Prints the names of the packages in --deps.
list_packages() {
  if [[ -e $deps/packages.txt ]]; then
    cat "$deps/packages.txt"
  else
    find "$deps" -maxdepth 1 -name '*.deb' -printf '%f\n'
  fi
}

prefix=
runtime=
if [[ -n $deps ]]; then
  step "packages of $deps"
  mapfile -t archives < <(list_packages)
  ((${#archives[@]} > 0)) || fail "--deps: no .deb file in $deps"
  command -v dpkg > /dev/null || fail "dpkg is not here to unpack packages"
  prefix=$build/deps
  rm -rf "$prefix"
  mkdir -p "$prefix"
  for archive in "${archives[@]}"; do
    [[ -e $deps/$archive ]] || fail "--deps: $archive of packages.txt is not in $deps"
    dpkg -x "$deps/$archive" "$prefix"
  done
  runtime=$prefix/runtime
  mkdir -p "$runtime"
  find "$prefix/usr/lib" -name 'lib*.so*' \
    -regex '.*/lib\(fmt\|hwy\|caf_\|benchmark\)[^/]*' \
    -exec ln -s {} "$runtime" \;
  # Debian's doctest names /usr, and some of OpenSSL's headers are in a folder for
  # the architecture, where only the system's own compiler looks.
  headers=$prefix/usr/include
  export CPLUS_INCLUDE_PATH="$headers:$headers/x86_64-linux-gnu${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}"
  # This is also for the projects that tests configure.
  export CMAKE_PREFIX_PATH="$prefix/usr${CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}"
  printf 'unpacked into %s\n' "$prefix"
fi

with_path() {
  local path=$1
  shift
  LD_LIBRARY_PATH="$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
}

# Runs a program from the unpacked packages, which needs all of their libraries.
with_packages() {
  with_path "$prefix/usr/lib/x86_64-linux-gnu:$prefix/lib/x86_64-linux-gnu" "$@"
}

# Runs one of our programs, or one of the machine's that starts ours, with only
# those of the packages' libraries that ours are linked with.
with_libraries() {
  if [[ -n $runtime ]]; then with_path "$runtime" "$@"; else "$@"; fi
}

# -- tools --------------------------------------------------------------------

# Prints the path of a tool: the machine's own, or that from the packages.
find_tool() {
  command -v "$1" && return
  [[ -n $prefix && -x $prefix/usr/bin/$1 ]] && printf '%s\n' "$prefix/usr/bin/$1"
}

recent_cmake() {
  at_least 3.25 \
    "$("$1" --version 2> /dev/null | sed -n '1s/[^0-9]*\([0-9.]*\).*/\1/p')"
}

# links_shared COMPILER: whether its programs use the shared C++ library, and
# contain none.
links_shared() {
  echo 'int main() { throw 1; }' > "$build/probe.cpp"
  eval "$1" '"$build/probe.cpp"' -o '"$build/probe"' "${LDFLAGS:-}" \
    && [[ $(ldd "$build/probe") == *libstdc++* ]]
}

# Checks CMake's compiler, and nvcc's, which links the programs that contain
# CUDA.
all_link_shared() {
  local host=${CUDAHOSTCXX:-g++}
  links_shared "$CXX" \
    && { ! command -v "$host" > /dev/null || links_shared "$host"; }
}

# Prints the path of the shared C++ library.
find_cxx_library() {
  local path
  for path in "$(eval "$CXX" -print-file-name=libstdc++.so.6)" \
    $(PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2> /dev/null | sed -n 's/.*libstdc++\.so\.6 .*x86-64.* => //p'); do
    [[ ! -e $path ]] || {
      printf '%s\n' "$path"
      return
    }
  done
}

# libtorch uses the shared C++ library; an exception that passes through it is
# lost if the program contains another one. Some machines have the shared one
# without the name by which a linker finds it.
use_shared_cxx_library() {
  all_link_shared && return
  local library
  library=$(find_cxx_library)
  mkdir -p "$build/libstdc++"
  ln -sf "${library:-libstdc++.so.6}" "$build/libstdc++/libstdc++.so"
  LDFLAGS="-L$(printf %q "$build/libstdc++") ${LDFLAGS:-}"
  export LDFLAGS
  if all_link_shared; then
    printf 'linked with %s, which the compiler does not find by itself\n' "$library"
  else
    echo "programs have a C++ library in them: errors in libtorch's threads are lost"
  fi
}

step "tools"
start=() # what cmake, ctest and ninja are started by
nvcc=$(find_nvcc) || fail "no nvcc of CUDA 12.1 or later; set CUDACXX"
ninja=$(find_tool ninja) \
  || fail "no ninja; collect it with offline-deps.sh"
cmake=$(command -v cmake || true)
ctest=ctest
if [[ -z $cmake ]] || ! recent_cmake "$cmake"; then
  cmake=$prefix/usr/bin/cmake
  [[ -n $prefix && -x $cmake ]] \
    || fail "no CMake of 3.25 or later; collect it with offline-deps.sh"
  start=(with_packages)
  ctest=$prefix/usr/bin/ctest
fi
printf 'nvcc   %s, %s\n' "$nvcc" "$(release_of "$nvcc")"
export CXX=${CXX:-c++}
printf 'cmake  %s\nninja  %s\nc++    %s, %s\n' "$cmake" "$ninja" "$CXX" \
  "$(eval "$CXX" --version | head -1)"
use_shared_cxx_library

# For a test that makes certificates.
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

# Builds, and tests without a GPU, have the rest of the time.
unlimited=86400

# configure ROOT-OF-THE-COMPARISON [OPTION...]
configure() {
  local peer=$1
  shift
  # shellcheck disable=SC2046
  "${start[@]}" limited "$(seconds_for "$unlimited")" \
    "$cmake" $(fresh_for_nvcc "$build" "$nvcc") -S . -B "$build" -G Ninja \
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
    "$@" > "$build/configure.log" 2>&1
}

compile() {
  "${start[@]}" limited "$(seconds_for "$unlimited")" \
    "$ninja" -C "$build" "$@" > "$build/build.log" 2>&1
}

# Prints the first errors of a build, with long lines cut.
first_errors() {
  grep -s -m5 -E 'error: |undefined ' "$build/build.log" | cut -c1-300 || true
}

# must_build STATUS WHAT LOG
must_build() {
  (($1 > 0)) || return 0
  first_errors >&2
  tail -30 "$build/$3" | cut -c1-300 >&2
  keep configure.log build.log
  (($1 != 124)) || fail "$2: not done in time, after $SECONDS s"
  fail "$2 failed"
}

step "build for compute capability $architecture"
status=0
configure "$torch_root" || status=$?
must_build "$status" CMake configure.log
# The comparison may fail to build: all else is then built in the same run.
failures=1
[[ -z $torch_root ]] || failures=0
compile -k "$failures" || status=$?
if [[ -n $torch_root ]] && ((status != 0 && status != 124)); then
  first_errors
  echo "again without the comparison with libtorch, which may not build here"
  status=0
  configure "" || status=$?
  must_build "$status" CMake configure.log
  compile || status=$?
fi
must_build "$status" "the build" build.log
keep configure.log build.log
grep -E '^SYNCNORM_ENABLE_(ACTORS|CUDA):' "$build/CMakeCache.txt"

# -- tests and benchmark ------------------------------------------------------

# run_tests STEP NAME SECONDS OPTION...: those that ctest finds with the
# options. Prints what failed or was skipped and the first errors; NAME.log has
# everything.
run_tests() {
  local what=$1 log=$build/$2.log seconds status=0
  seconds=$(seconds_for "$3")
  with_libraries "${start[@]}" limited "$seconds" "$ctest" \
    --test-dir "$build" --output-on-failure --no-tests=error -j "$(usable_cores)" \
    "${@:4}" > "$log" 2>&1 || status=$?
  grep -m5 -A4 'ERROR: ' "$log" | cut -c1-160 || true
  sed -n '/tests passed/p; /^The following tests/,$p' "$log" \
    | sed -n 1,30p
  ended "$what" "$status"
  keep "$2.log"
}

# Checks that no GPU test was skipped by mistake: others may be, for lack of
# memory.
check_skipped() {
  local gpu_tests name
  gpu_tests=$("${start[@]}" "$ctest" --test-dir "$build" --show-only -L '^gpu$' \
    | sed -n 's/^ *Test *#[0-9]*: //p')
  [[ -n $gpu_tests ]] || failed+=("there are no GPU tests")
  for name in $gpu_tests; do
    if grep -q "Test *#[0-9]*: ${name//./\\.} .*\*\*\*Skipped" \
      "$build/ctest-gpu.log"; then
      failed+=("$name was skipped")
    fi
  done
}

if begin "GPU tests"; then
  run_tests "GPU tests" ctest-gpu 240 -L '^gpu$'
  if $gpu; then check_skipped; fi
fi

run_benchmark() {
  local status=0 why
  with_libraries limited "$(seconds_for 180)" \
    "$build/bench/cuda_kernels" --summary="$build/cuda_kernels.json" \
    > "$build/bench.log" 2>&1 || status=$?
  why=$(grep -m1 '^cuda_kernels: ' "$build/bench.log" || tail -1 "$build/bench.log")
  printf '%s\n' "${why:0:300}"
  ended benchmark "$status" "${why:0:300}"
  keep bench.log cuda_kernels.json
}

if $gpu && begin benchmark; then
  run_benchmark
fi

# Runs a test program under one tool of compute-sanitizer.
sanitize() {
  local tool=$1 status=0
  shift
  with_libraries limited \
    "$(seconds_for "${SYNCNORM_SANITIZER_SECONDS:-90}")" "$sanitizer" \
    --tool "$tool" --error-exitcode 9 "$@" > "$build/$tool.log" 2>&1 || status=$?
  tail -3 "$build/$tool.log" | cut -c1-300
  ((status > 0)) || printf '%s: clean\n' "$tool"
  ended "compute-sanitizer $tool" "$status"
  keep "$tool.log"
}

if $gpu; then
  if sanitizer=$(command -v compute-sanitizer "${nvcc%/*}/compute-sanitizer"); then
    sanitizer=$(head -1 <<< "$sanitizer")
    if begin "compute-sanitizer memcheck"; then
      sanitize memcheck "$build/tests/kernels/test_kernels_cuda_suite"
    fi
    if begin "compute-sanitizer racecheck"; then
      sanitize racecheck "$build/tests/kernels/test_kernels_cuda_streams"
    fi
  else
    echo "no compute-sanitizer here"
  fi
fi

if begin "other tests"; then
  run_tests "other tests" ctest "$unlimited" --label-exclude '^gpu$' \
    --exclude-regex '^package\.'
fi

# The libtorch component on GPUs, in the same build folder.
check_component() {
  local status=0
  configure "" -DSYNCNORM_ENABLE_TORCH=ON -DSYNCNORM_TORCH_ROOT="$torch_root" \
    -DSYNCNORM_ENABLE_BENCH=OFF || status=$?
  if ((status > 0)); then
    tail -5 "$build/configure.log" | cut -c1-300
    ended "the libtorch component" "$status" "CMake failed"
    return
  fi
  compile test_nn_cuda || status=$?
  if ((status > 0)); then
    first_errors
    ended "the libtorch component" "$status" "it does not build"
    return
  fi
  with_libraries limited "$(seconds_for 300)" \
    "$build/tests/nn/test_nn_cuda" > "$build/component.log" 2>&1 || status=$?
  tail -5 "$build/component.log" | cut -c1-300
  if ((status == 77)); then
    if $gpu; then failed+=("the libtorch component saw no GPU"); fi
  else
    ended "the libtorch component" "$status"
  fi
}

if [[ -n $torch_root ]]; then
  if ! grep -q '^SYNCNORM_ENABLE_ACTORS:BOOL=ON' "$build/CMakeCache.txt"; then
    echo "the libtorch component needs CAF: left out"
  elif begin "libtorch component"; then
    check_component
    keep component.log
  fi
fi

# -- result -------------------------------------------------------------------

print_result() {
  local what
  for what in "${failed[@]}"; do
    printf 'FAILED: %s\n' "$what"
  done
  ((${#failed[@]} > 0)) || printf 'all passed\n'
  printf 'logs: %s\n' "$build"
  if [[ -s $build/bench.log ]]; then
    printf '\n%s\n' "$(head -1 "$build/bench.log" | cut -c1-400)"
    grep -E '^[0-9]+ of [0-9]+ goals not met' "$build/bench.log" || true
    awk -f "$root/scripts/ratio_table.awk" "$build/bench.log"
  fi
}

step "result"
print_result | tee "$build/result.txt"
keep result.txt
((${#failed[@]} == 0))
