#!/usr/bin/env bash
# Runs the benchmarks: those of the core, on memory and one processor, and then
# the tables of tests/bench, among them the comparison with the plain table
# client on an Azurite of its own.
# BENCH selects the former by name, BENCHTIME is passed on to them, PACKAGES
# replaces the packages they are in. BENCH_ARGS goes to the latter.
set -euo pipefail
cd "$(dirname "$0")/.."

with_benchmarks() {
  ./scripts/go-files.sh | grep '^\./core/.*_test\.go$' | xargs -r grep -l '^func Benchmark' |
    xargs -r -n1 dirname | sort -u
}

mapfile -t packages < <(if [ -n "${PACKAGES:-}" ]; then tr ' ' '\n' <<<"$PACKAGES"; else with_benchmarks; fi)
if [ ${#packages[@]} -gt 0 ]; then
  go test -run '^$' -bench "${BENCH:-.}" -benchmem -benchtime "${BENCHTIME:-1s}" -cpu 1 "${packages[@]}"
fi
# shellcheck disable=SC2086
go run ./tests/bench ${BENCH_ARGS:-}
