#!/bin/sh
# Installs Azurite, the Azure Storage emulator that the tests run against, into
# .tools/azurite of this checkout, once, and prints the path of the program.
# The version is pinned by scripts/azurite/package-lock.json.
set -eu
exec "$(dirname -- "$0")/install-npm.sh" azurite node_modules/azurite/dist/src/azurite.js
