# Sourced by train.sh: one program in several processes on this machine.
# shellcheck shell=bash

free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)); do
    (: >"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

# Asks the first process to stop. Before there is one, all end, with the status
# of a program that has been asked.
stop_first() {
  [[ -n $first ]] || exit 143
  kill -TERM "$first" 2>/dev/null || true
}

kill_all() {
  local ids
  mapfile -t ids < <(jobs -pr)
  kill -KILL "${ids[@]}" 2>/dev/null || true
}

# run_several N PROGRAM [ARGUMENT...]: with the variables of a launcher, see
# docs/trainer.md. Returns the exit status of the first process.
run_several() {
  local processes=$1 program=$2 rank
  shift 2
  first=
  # They end with the first one; a stopped one would stay.
  trap kill_all EXIT
  # What is started in the background ignores Ctrl-C until it asks for it.
  trap stop_first INT TERM HUP
  export MASTER_ADDR=127.0.0.1 MASTER_PORT WORLD_SIZE=$processes
  MASTER_PORT=$(free_port)
  for ((rank = 1; rank < processes; ++rank)); do
    RANK=$rank LOCAL_RANK=$rank "$program" "$@" >/dev/null &
  done
  RANK=0 LOCAL_RANK=0 "$program" "$@" &
  first=$!
  # A signal interrupts the waiting, with a status of its own.
  while kill -0 "$first" 2>/dev/null; do
    wait "$first" || true
  done
  wait "$first"
}
