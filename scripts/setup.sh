#!/usr/bin/env bash
# Installs what the tests need and the machine lacks. Safe to run again: it
# does nothing then. Needs Go, Node and, for what is missing, apt.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

command -v go >/dev/null 2>&1 || fail "Go is missing"
command -v node >/dev/null 2>&1 || fail "Node is missing"
command -v npm >/dev/null 2>&1 || fail "npm is missing"

# The race detector links with a C compiler; the README's lines call curl.
packages=()
command -v gcc >/dev/null 2>&1 || packages+=(gcc libc6-dev)
command -v curl >/dev/null 2>&1 || packages+=(curl ca-certificates)
if [ ${#packages[@]} -gt 0 ]; then
  ./scripts/apt-install.sh "${packages[@]}"
fi

# Azurite, the storage emulator that stands in for a real account.
./scripts/install-azurite.sh >/dev/null

# The servers that the tests of migration read from, and the Prometheus that the
# tests of telemetry ask. None is left running.
for engine in redis postgres mariadb prometheus buildah; do
  ./scripts/install-engine.sh "$engine" >/dev/null
done
./scripts/install-cosmos.sh >/dev/null
