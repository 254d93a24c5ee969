#!/usr/bin/env bash
# Installs what syncnorm needs and this machine lacks, from Debian 12's own
# packages. Says what it does; does nothing the second time.
#
#   scripts/setup.sh [--list]
#
#   --list  print the names of the packages and stop
set -euo pipefail

packages=(
  # compilers and tools; CMake's default generator needs make
  g++ cmake make ninja-build git clang-format-14 clang-tidy-14 python3 pkgconf
  doxygen
  # for packages of shared libraries: CPack finds what those need
  file dpkg-dev
  # the fuzzer of messages is part of clang
  clang-14 libclang-rt-14-dev
  # the collective: CAF, and what its tests and benchmarks need
  libcaf-dev libssl-dev openssl libfmt-dev doctest-dev libbenchmark-dev
  nlohmann-json3-dev
  # the kernels: SIMD, tensor exchange, and what they are measured against;
  # oneDNN's CMake package needs OpenCL
  libhwy-dev libdlpack-dev libdnnl-dev ocl-icd-opencl-dev
  # the libtorch component and the trainer
  libtorch-dev zlib1g-dev
  # a test loads the trainer's models in Python's torch
  python3-torch
)

if [[ $# -eq 1 && $1 == --list ]]; then
  printf '%s\n' "${packages[@]}"
  exit 0
elif [[ $# -gt 0 ]]; then
  [[ $1 != --list ]] || shift
  echo "setup: unknown argument '$1'; it takes --list or nothing" >&2
  exit 2
fi

# A package with several architectures has the word once for each.
installed() {
  [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed* ]]
}

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done

if [[ ${#missing[@]} -eq 0 ]]; then
  echo "setup: all ${#packages[@]} packages are installed, nothing to do"
  exit 0
fi

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || {
    echo "setup: run as root or install sudo; missing: ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi

echo "setup: installing ${#missing[@]} packages: ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -q --no-install-recommends "${missing[@]}"
echo "setup: done"
