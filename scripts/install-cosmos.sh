#!/bin/sh
# Installs the emulator of Azure Cosmos DB that the tests of migration read
# from, into .tools/cosmos of this checkout, once, and prints the path of its
# module. The version is pinned by scripts/cosmos/package-lock.json.
set -eu
exec "$(dirname -- "$0")/install-npm.sh" cosmos node_modules/@vercel/cosmosdb-server/lib/index.js
