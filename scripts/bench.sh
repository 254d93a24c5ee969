#!/usr/bin/env bash
# Builds and runs the benchmarks, writes build/bench/summary.json and prints it
# as a table: a list of {name, ours, theirs, unit, ratio, goal, met}.
#
#   scripts/bench.sh [NAME...]     for example: scripts/bench.sh collective
#
#   NAME    collective, kernels, layer, network, pipeline, scaling or trainer;
#           all of them if none is named
#   --help  prints this and stops
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

case ${1:-} in
--help | -h)
  print_head
  exit 0
  ;;
-*)
  echo "bench: unknown option '$1' (see --help)" >&2
  exit 2
  ;;
esac

"$root/scripts/setup.sh"
say "building the benchmarks"
build cpu
out=$root/build/bench
mkdir -p "$out"
names=("$@")
if [[ ${#names[@]} -eq 0 ]]; then
  for name in collective kernels layer network pipeline scaling trainer; do
    [[ -x $root/build/cpu/bench/$name ]] && names+=("$name")
  done
fi
summaries=()
for name in "${names[@]}"; do
  say "bench/$name"
  "$root/build/cpu/bench/$name" --summary="$out/$name.json" \
    --benchmark_out="$out/$name.benchmark.json"
  summaries+=("$out/$name.json")
done
python3 "$root/scripts/summarize.py" "$out/summary.json" "${summaries[@]}"
