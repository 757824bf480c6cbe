#!/usr/bin/env bash
# Fails, naming them, if some Go files are not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."
unformatted=$(./scripts/go-files.sh | xargs -r gofmt -l)
if [ -n "$unformatted" ]; then
  printf 'not formatted, run make fmt:\n%s\n' "$unformatted" >&2
  exit 1
fi
