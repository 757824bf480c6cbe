#!/usr/bin/env bash
# Lays out what each cloud host deploys: dist/azurefunc and dist/awslambda.
# GOARCH chooses the processor (amd64 unless set).
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOOS=linux GOARCH="${GOARCH:-amd64}"
rm -rf dist
mkdir -p dist
cp -R infra/azurefunc dist/azurefunc
go build -trimpath -ldflags '-s -w' -o dist/azurefunc/handler ./functions/azurefunc
go build -trimpath -tags lambda.norpc -ldflags '-s -w' -o dist/awslambda/bootstrap ./functions/awslambda
printf 'dist/azurefunc and dist/awslambda are ready (linux/%s)\n' "$GOARCH"
