#!/usr/bin/env bash
# Runs clang-tidy 14 with the checks of .clang-tidy over the library's sources
# (kernels and actors), as the cpu preset compiles them: several as one file,
# where CMakeLists.txt says so. What includes libtorch is left out: clang 14
# cannot read its headers as C++20.
#
#   scripts/lint.sh [SOURCE...]
#
# With sources: only over the files that contain them.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Prints the files that are compiled; if there are arguments, those that contain
# one of these sources.
compiled() {
  python3 - build/cpu/compile_commands.json "$root" "$@" <<'END'
import json, re, sys

database, root, *sources = sys.argv[1:]
wanted = {f"{root}/{source}" for source in sources}
for entry in json.load(open(database)):
    if "/torch/" in entry["command"]:
        continue
    name = entry["file"]
    parts = [name]
    if "/Unity/" in name:
        parts = re.findall(r'#include "(.*)"', open(name).read())
    ours = parts[0].startswith((f"{root}/kernels/", f"{root}/actors/"))
    if ours and (not wanted or wanted & set(parts)):
        print(name)
END
}

say "linting (clang-tidy 14)"
cd "$root"
cmake --preset cpu >/dev/null
compiled "$@" | sort -u |
  xargs -P "$(jobs_for_memory)" -n 1 clang-tidy-14 --quiet -p build/cpu \
    --checks=-bugprone-suspicious-include \
    --extra-arg=-Wno-unknown-warning-option
