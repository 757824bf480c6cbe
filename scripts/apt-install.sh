#!/usr/bin/env bash
# Installs Debian packages, as root or by sudo, without starting the services
# that come with them. Callers that run it at the same moment wait for each
# other.
#
# Usage: apt-install.sh PACKAGE…
set -euo pipefail

say() { printf 'apt-install: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; return; fi
  command -v sudo >/dev/null 2>&1 || fail "need root (or sudo) to run: $*"
  sudo -n "$@"
}

command -v apt-get >/dev/null 2>&1 || fail "please install: $*"

tools=$(cd "$(dirname "$0")/.." && pwd)/.tools
mkdir -p "$tools"
[ -f "$tools/.gitignore" ] || echo '*' >"$tools/.gitignore"
# The lock lives as long as descriptor 9 is open, so a killed run frees it.
exec 9>"$tools/apt.lock"
flock 9

# Debian asks this program before it starts a service; 101 means no. A machine
# that has an answer of its own keeps it.
policy=/usr/sbin/policy-rc.d
ours=
cleanup() { [ -z "$ours" ] || as_root rm -f "$policy"; }
trap cleanup EXIT
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
  ours=yes
  as_root chmod 755 "$policy"
fi

as_root apt-get -o DPkg::Lock::Timeout=300 update -qq >&2
say "installing $*"
as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
  install -y -qq --no-install-recommends "$@" >&2 9>&-
