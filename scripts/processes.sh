# Sourced by train.sh: one program in several processes on this machine.
# shellcheck shell=bash

free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)); do
    (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

# Asks the first process to stop. Before it has started, all end, with the
# status of a program that has been asked to stop.
stop_first() {
  [[ -n $first ]] || exit 143
  kill -TERM "$first" 2>/dev/null || true
}

kill_all() {
  local ids
  mapfile -t ids < <(jobs -pr)
  kill -KILL "${ids[@]}" 2>/dev/null || true
}

# run_several N PROGRAM [ARGUMENT...]: runs N processes with a launcher's
# variables, see docs/trainer.md. Returns the exit status of the first one.
run_several() {
  local processes=$1 program=$2 rank
  shift 2
  first=
  # The others end with the first one; a stopped one would remain.
  trap kill_all EXIT
  # A background process ignores Ctrl-C until it sets its own handler.
  trap stop_first INT TERM HUP
  export MASTER_ADDR=127.0.0.1 MASTER_PORT WORLD_SIZE=$processes
  MASTER_PORT=$(free_port)
  for ((rank = 1; rank < processes; ++rank)); do
    RANK=$rank LOCAL_RANK=$rank "$program" "$@" >/dev/null &
  done
  RANK=0 LOCAL_RANK=0 "$program" "$@" &
  first=$!
  # A signal interrupts `wait`, which then returns another status.
  while kill -0 "$first" 2>/dev/null; do
    wait "$first" || true
  done
  wait "$first"
}
