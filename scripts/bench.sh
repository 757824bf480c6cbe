#!/usr/bin/env bash
# Runs the benchmarks: first those beside the code, on the memory provider and
# in one process, then the comparison with the plain table client on Azurite.
# BENCH selects by name, BENCHTIME is passed on, BENCH_ARGS goes to the
# comparison.
set -euo pipefail
cd "$(dirname "$0")/.."

with_benchmarks() {
  ./scripts/go-files.sh | grep '_test\.go$' | xargs -r grep -l '^func Benchmark' |
    xargs -r -n1 dirname | sort -u
}

mapfile -t packages < <(with_benchmarks)
if [ ${#packages[@]} -gt 0 ]; then
  go test -run '^$' -bench "${BENCH:-.}" -benchmem -benchtime "${BENCHTIME:-1s}" -cpu 1 "${packages[@]}"
fi
# shellcheck disable=SC2086
go run ./tests/bench ${BENCH_ARGS:-}
