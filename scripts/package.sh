#!/usr/bin/env bash
# Builds the Debian packages of every component that this machine has what it
# takes for, and names them: build/package/*.deb.
#
#   scripts/package.sh [--help | CMAKE-OPTION...]
#
#   scripts/package.sh -DSYNCNORM_ENABLE_TORCH=OFF -DBUILD_SHARED_LIBS=ON
set -euo pipefail
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

case ${1:-} in
--help | -h)
  print_head
  exit 0
  ;;
esac

say "building the packages"
cd "$root"
take_turns
cmake --fresh -S . -B build/package -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_INSTALL_PREFIX=/usr -DSYNCNORM_ENABLE_CUDA=OFF \
  -DSYNCNORM_ENABLE_TESTS=OFF -DSYNCNORM_ENABLE_EXAMPLES=OFF "$@" >/dev/null
cmake --build build/package -j "$(jobs_for_memory)" -- --quiet
rm -f build/package/*.deb
(cd build/package && cpack -G DEB)
