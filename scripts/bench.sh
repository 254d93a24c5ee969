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
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

all=(collective kernels layer network pipeline scaling trainer)
names=("$@")
targets=(bench)
((${#names[@]} == 0)) || targets=("${names[@]/#/bench_}")
for name in "${names[@]}"; do
  case $name in
  --help | -h)
    print_head
    exit 0
    ;;
  -*)
    echo "bench: unknown option '$name' (see --help)" >&2
    exit 2
    ;;
  esac
  [[ $name != *' '* && " ${all[*]} " == *" $name "* ]] || {
    echo "bench: unknown benchmark '$name'; there are: ${all[*]}" >&2
    exit 2
  }
done

"$root/scripts/setup.sh"
say "building the benchmarks"
build cpu "${targets[@]}"
out=$root/build/bench
mkdir -p "$out"
if ((${#names[@]} == 0)); then
  for name in "${all[@]}"; do
    if [[ -x $root/build/cpu/bench/$name ]]; then
      names+=("$name")
    else
      echo "bench: bench/$name is left out: it was not built" >&2
    fi
  done
fi
((${#names[@]} > 0)) || {
  echo "bench: no benchmark was built" >&2
  exit 1
}
# A run that ends early leaves nothing that looks like its result.
rm -f "$out/summary.json"
summaries=()
for name in "${names[@]}"; do
  say "bench/$name"
  "$root/build/cpu/bench/$name" --summary="$out/$name.json" \
    --benchmark_out="$out/$name.benchmark.json"
  summaries+=("$out/$name.json")
done
python3 "$root/scripts/summarize.py" "$out/summary.json" "${summaries[@]}"
