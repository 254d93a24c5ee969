#!/usr/bin/env bash
# Sets up, builds and runs the example; arguments are passed on to it.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$root/scripts/setup.sh"
say "building examples/spawn"
build cpu syncnorm-spawn
say "running it"
exec "$root/build/cpu/examples/spawn/syncnorm-spawn" "$@"
