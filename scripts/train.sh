#!/usr/bin/env bash
# Sets up, builds and runs the trainer, on the bundled handwritten digits unless
# --data says otherwise. Arguments are passed on: scripts/train.sh --help
#
#   --processes=N   N processes on this machine, each with one core or its own
#                   GPU unless --devices says otherwise
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

processes=1
arguments=()
for argument in "$@"; do
  case $argument in
  --processes=*) processes=${argument#*=} ;;
  *) arguments+=("$argument") ;;
  esac
done
[[ $processes =~ ^[1-9][0-9]{0,3}$ ]] || {
  echo "train.sh: --processes: expected 1 to 9999, found \"$processes\"" >&2
  exit 1
}

free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)); do
    (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

# The variables of a launcher: see docs/trainer.md.
run_several() {
  export MASTER_ADDR=127.0.0.1 MASTER_PORT WORLD_SIZE=$processes
  MASTER_PORT=$(free_port)
  local rank others=() status=0
  for ((rank = 1; rank < processes; ++rank)); do
    RANK=$rank LOCAL_RANK=$rank "$program" "$@" >/dev/null &
    others+=($!)
  done
  # They end with the first one; a stopped one would stay.
  trap 'kill -KILL "${others[@]}" 2>/dev/null || true' EXIT
  # Ctrl-C is for the processes, which then end.
  trap : INT
  RANK=0 LOCAL_RANK=0 "$program" "$@" || status=$?
  return "$status"
}

"$root/scripts/setup.sh"
say "building examples/trainer"
build cpu syncnorm-train
say "training"
program=$root/build/cpu/examples/trainer/syncnorm-train
((processes > 1)) || exec "$program" ${arguments[@]+"${arguments[@]}"}
run_several ${arguments[@]+"${arguments[@]}"}
