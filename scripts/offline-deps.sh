#!/usr/bin/env bash
# Collects the Debian packages that syncnorm is built with, for a machine that
# reaches no package registry.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/offline-deps.sh [--unpack] DIR

Downloads into DIR the .deb files of what a machine with a C++ compiler and the
CUDA toolkit may lack: CAF, OpenSSL, fmt, doctest, Highway, DLPack, Google
Benchmark, nlohmann-json, CMake and Ninja, each with the libraries that it needs.
Left out is what every such machine has: libc, libstdc++, perl, tar and the like.

  --unpack  also unpacks them into DIR/root (dpkg -x; no root needed), and no
            other .deb file that lies in DIR
  --help    prints this

DIR/packages.txt names the files. Needs Debian 12 or a system with the same
package names, and apt-get. Nothing is installed. scripts/gpu-check.sh takes DIR
as its --deps.
TEXT
}

fail() {
  printf 'offline-deps.sh: %s\n' "$*" >&2
  exit 1
}

packages=(libcaf-dev libssl-dev openssl libfmt-dev doctest-dev libhwy-dev
  libdlpack-dev libbenchmark-dev nlohmann-json3-dev ninja-build cmake)

# Base packages: unpacked beside the system's own, they would only do harm.
base='^(libc6|libcrypt1|libgcc-s1|libstdc\+\+6|gcc-.*-base|dpkg|tar|perl.*'
base+='|libperl.*|lib.*-perl|procps|libproc2-0|init-system-helpers|usr-is-merged'
base+='|usrmerge|libsystemd0|libelogind0|libdb5\.3|libgdbm.*|libtinfo6'
base+='|libncurses.*|libselinux1|libpcre2.*)$'

unpack=false
directory=
while (($# > 0)); do
  case $1 in
    --help)
      usage
      exit 0
      ;;
    --unpack) unpack=true ;;
    -*) fail "unknown option $1 (see --help)" ;;
    *)
      [[ -z $directory ]] || fail "more than one DIR (see --help)"
      directory=$1
      ;;
  esac
  shift
done
if [[ -z $directory ]]; then
  usage >&2
  exit 2
fi
command -v apt-get > /dev/null || fail "apt-get is not here"

mkdir -p "$directory"
unset CDPATH # where cd would look for it
directory=$(cd "$directory" && pwd)

mapfile -t closure < <(
  apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts \
    --no-breaks --no-replaces --no-enhances "${packages[@]}" \
    | grep -E '^[a-z0-9]' | grep -vE "$base" | sort -u
)
((${#closure[@]} >= ${#packages[@]})) \
  || fail "apt-cache knows no dependencies: run apt-get update first"

# The file names: asked for in an empty folder, since apt omits files already
# there.
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
mapfile -t archives < <(
  cd "$empty" && apt-get download --print-uris "${closure[@]}" \
    | awk '/^\047/ { print "./" $2 }'
)
cd "$directory"
apt-get download "${closure[@]}" \
  || fail "apt-get download failed; is the package list fresh?"
((${#archives[@]} == ${#closure[@]})) \
  || fail "apt-get names ${#archives[@]} files of ${#closure[@]} packages"

printf '%s\n' "${archives[@]#./}" > packages.txt
if $unpack; then
  mkdir -p root
  for archive in "${archives[@]}"; do
    dpkg -x "$archive" root
  done
fi

printf '%d packages, %s, in %s\n' "${#archives[@]}" \
  "$(du -ch "${archives[@]}" | tail -1 | cut -f1)" "$directory"
if $unpack; then
  printf 'unpacked in %s/root\n' "$directory"
fi
