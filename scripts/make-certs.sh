#!/usr/bin/env bash
# Makes certificates for several machines, or to try TLS with:
#
#   scripts/make-certs.sh DIR [--days=N] [--bad]
#
#   DIR/ca.pem                    the CA's certificate, for everybody
#   DIR/ca.key                    its key: with it new members are made. Keep it
#   DIR/server.pem, server.key    for the process that serves
#   DIR/client.pem, client.key    for those that join
#   DIR/node.pem, node.key        for either: what a launcher starts, and whoever
#                                 stands between others in a tree
#
#   --days=N  how long they are good for (30)
#   --bad     for tests: expired.pem of the same CA, foreign.pem of another one
#             (foreign-ca.pem), each for either role and with its key
#
# Each DIR gets a CA of its own. Nothing that is there is overwritten: if one of
# these files is, none is made. Of several runs at a time one makes all of them.
set -euo pipefail

dir='' days=30 bad=no
for argument in "$@"; do
  case $argument in
  --days=*) days=${argument#*=} ;;
  --bad) bad=yes ;;
  --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  -*)
    echo "make-certs: unknown argument '$argument'" >&2
    exit 2
    ;;
  *)
    [[ -z $dir ]] || {
      echo "make-certs: expected one folder, found '$dir' and '$argument'" >&2
      exit 2
    }
    dir=$argument
    ;;
  esac
done
[[ -n $dir ]] || {
  echo "make-certs: expected a folder: scripts/make-certs.sh DIR" >&2
  exit 2
}
[[ $days =~ ^[1-9][0-9]{0,4}$ ]] || {
  echo "make-certs: --days: expected 1 to 99999, found \"$days\"" >&2
  exit 2
}
names=(ca server client node)
[[ $bad == no ]] || names+=(expired foreign-ca foreign)
umask 077
unset CDPATH # where cd would look for it
mkdir -p -- "$dir"
cd -- "$dir"
refuse() {
  echo "make-certs: $dir/$1: there are certificates already" >&2
  exit 1
}
# Another run at the same point begins with this file as well.
files=(ca.key)
for file in "${names[@]/%/.pem}" "${names[@]/%/.key}"; do
  [[ ! -e $file && ! -L $file ]] || refuse "$file"
  [[ $file == ca.key ]] || files+=("$file")
done
# Unfinished files are made in a folder of their own, where nobody sees them.
there=$PWD
unfinished=$(mktemp -d "$there/unfinished.XXXXXX")
moved=()
trap 'rm -rf "$unfinished" "${moved[@]}"' EXIT
trap 'exit 1' INT TERM HUP
cd "$unfinished"

key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

# authority NAME: NAME.pem and NAME.key.
authority() {
  key "$1.key"
  openssl req -x509 -new -key "$1.key" -subj "/CN=syncnorm $1" -days "$days" \
    -addext basicConstraints=critical,CA:TRUE \
    -addext keyUsage=critical,keyCertSign,cRLSign -out "$1.pem"
}

# member NAME AUTHORITY USAGE DAYS: NAME.pem and NAME.key, signed by AUTHORITY.
member() {
  key "$1.key"
  openssl req -new -key "$1.key" -subj "/CN=syncnorm $1" -out "$1.csr"
  printf 'keyUsage=critical,digitalSignature\nextendedKeyUsage=%s\n' "$3" >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -days "$4" \
    -set_serial "0x$(openssl rand -hex 15)" -extfile "$1.ext" -out "$1.pem" \
    2>/dev/null
  rm "$1.csr" "$1.ext"
}

authority ca
member server ca serverAuth "$days"
member client ca clientAuth "$days"
member node ca serverAuth,clientAuth "$days"
if [[ $bad == yes ]]; then
  member expired ca serverAuth,clientAuth -1
  authority foreign-ca
  member foreign foreign-ca serverAuth,clientAuth "$days"
fi
for file in "${files[@]}"; do
  # mv leaves what it does not move, and does not always say so.
  mv -n "$file" "$there/" || true
  [[ ! -e $file ]] || refuse "$file"
  moved+=("$there/$file")
done
moved=()
echo "make-certs: certificates for $days days in $dir"
