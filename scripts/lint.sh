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
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

# Prints the files that are compiled; with arguments, only those that contain
# one of these sources. Fails if no file contains one of them.
compiled() {
  python3 - build/cpu/compile_commands.json "$root" "$@" <<'END'
import json, os.path, re, sys

database, root, *sources = sys.argv[1:]
wanted = {os.path.normpath(os.path.join(root, x)) for x in sources}
found = set()
names = set()
for entry in json.load(open(database)):
    # Of libtorch's folders, not of this clone's.
    if "/torch/" in entry["command"].replace(root, ""):
        continue
    name = entry["file"]
    parts = [name]
    if "/Unity/" in name:
        parts = re.findall(r'#include "(.*)"', open(name).read())
    ours = parts[0].startswith((f"{root}/kernels/", f"{root}/actors/"))
    if ours and (not wanted or wanted & set(parts)):
        found.update(parts)
        names.add(name)
if unknown := sorted(wanted - found):
    sys.exit("lint: no file that is linted contains " + ", ".join(unknown))
if not names:
    sys.exit(f"lint: {database} has no file to lint")
for name in sorted(names):
    print(name)
END
}

say "linting (clang-tidy 14)"
cd "$root"
take_turns
cmake --preset cpu >/dev/null
compiled "$@" |
  xargs -r -d '\n' -P "$(jobs_for_memory)" -n 1 clang-tidy-14 --quiet -p build/cpu \
    --checks=-bugprone-suspicious-include \
    --extra-arg=-Wno-unknown-warning-option
