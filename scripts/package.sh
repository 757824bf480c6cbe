#!/usr/bin/env bash
# Makes what the cloud hosts deploy: scripts/package.sh [azurefunc] [awslambda],
# both unless told. DIST is the folder it goes to, dist unless set, and GOARCH
# the processor of the function app, amd64 unless set; the Lambda function is
# made for both processors. The same sources give the same zips, byte for byte.
set -euo pipefail
cd "$(dirname "$0")/.."

dist="${DIST:-dist}"
arch="${GOARCH:-amd64}"
# Tools run on this machine, whatever is built for.
unset GOARCH GOOS
mkdir -p "$dist"
tools="$(mktemp -d)"
trap 'rm -rf "$tools"' EXIT
go build -o "$tools/pack" ./scripts/pack

# build PROCESSOR OUTPUT PACKAGE [FLAG...]
build() {
  CGO_ENABLED=0 GOOS=linux GOARCH="$1" go build -trimpath -ldflags '-s -w' "${@:4}" -o "$2" "$3"
}

# The Azure Functions app: the handler beside host.json, and a folder for each
# function. Settings of a developer's machine stay here.
package_azurefunc() {
  rm -rf "$dist/azurefunc"
  cp -R infra/azurefunc "$dist/azurefunc"
  rm -f "$dist/azurefunc/local.settings.json"
  build "$arch" "$dist/azurefunc/handler" ./functions/azurefunc
  "$tools/pack" -out "$dist/lattice-azurefunc.zip" "$dist/azurefunc"
}

# The Lambda function, for the runtime provided.al2023: it runs the program
# called bootstrap. Without the tag the program would have the protocol of an
# older runtime in it as well.
package_awslambda() {
  local processor
  for processor in arm64 amd64; do
    rm -rf "$dist/awslambda-$processor"
    build "$processor" "$dist/awslambda-$processor/bootstrap" ./functions/awslambda -tags lambda.norpc
    "$tools/pack" -out "$dist/lattice-awslambda-$processor.zip" "$dist/awslambda-$processor"
  done
}

if [ $# -eq 0 ]; then
  set -- azurefunc awslambda
fi
for host in "$@"; do
  case "$host" in
    azurefunc | awslambda) "package_$host" ;;
    *) printf 'package: no host is called %s; there are azurefunc and awslambda\n' "$host" >&2; exit 2 ;;
  esac
done
