#!/usr/bin/env bash
# Prints the Go files of the project, one a line.
set -euo pipefail
cd "$(dirname "$0")/.."
find . \( -name '.?*' -o -name node_modules -o -path ./bin -o -path ./dist -o -path ./lattice-data \) -prune \
  -o -name '*.go' -print
