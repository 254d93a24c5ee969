#!/usr/bin/env bash
# Sets up, builds and runs the trainer, on the bundled handwritten digits unless
# --data says otherwise. Arguments are passed on: scripts/train.sh --help
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

"$root/scripts/setup.sh"
say "building examples/trainer"
build cpu syncnorm-train
say "training"
exec "$root/build/cpu/examples/trainer/syncnorm-train" "$@"
