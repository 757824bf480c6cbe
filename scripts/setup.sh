#!/usr/bin/env bash
# Installs what the tests need and the machine lacks. Safe to run again: it
# does nothing then. Needs Go, Node and, for what is missing, apt.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; return; fi
  command -v sudo >/dev/null 2>&1 || fail "need root (or sudo) to run: $*"
  sudo -n "$@"
}

updated=
apt_install() {
  command -v apt-get >/dev/null 2>&1 || fail "please install: $*"
  if [ -z "$updated" ]; then
    as_root apt-get update -qq
    updated=yes
  fi
  say "installing $*"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

command -v go >/dev/null 2>&1 || fail "Go is missing"
command -v node >/dev/null 2>&1 || fail "Node is missing"
command -v npm >/dev/null 2>&1 || fail "npm is missing"

# The race detector links with a C compiler; the README's lines call curl.
packages=()
command -v gcc >/dev/null 2>&1 || packages+=(gcc libc6-dev)
command -v curl >/dev/null 2>&1 || packages+=(curl ca-certificates)
if [ ${#packages[@]} -gt 0 ]; then
  apt_install "${packages[@]}"
fi

# Azurite, the storage emulator that stands in for a real account.
./scripts/install-azurite.sh >/dev/null
