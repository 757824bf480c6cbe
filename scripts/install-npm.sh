#!/bin/sh
# Installs the npm packages that scripts/NAME/package-lock.json pins, hashes
# included, into .tools/NAME of this checkout. Running it again does nothing;
# callers that run it at the same moment wait for each other. Prints the path
# of FILE, which must be there then; FILE is relative to .tools/NAME.
#
# Usage: install-npm.sh NAME FILE
set -eu

name=$1
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
manifest=$root/scripts/$name
tools=$root/.tools
target=$tools/$name
file=$target/$2

fail() {
	echo "install-$name: $*" >&2
	exit 1
}

# Everything below .tools is made by tools: it keeps itself out of the index.
mkdir -p "$tools" || fail "cannot create $tools"
[ -f "$tools/.gitignore" ] || echo '*' >"$tools/.gitignore"

want=$(cksum <"$manifest/package-lock.json")
installed() { [ -f "$file" ] && [ "$(cat "$target/.installed" 2>/dev/null)" = "$want" ]; }

if installed; then
	echo "$file"
	exit 0
fi

command -v node >/dev/null 2>&1 || fail "node is missing; install Node.js 20 or newer"
command -v npm >/dev/null 2>&1 || fail "npm is missing; install it along with Node.js"
major=$(node -p 'process.versions.node.split(".")[0]') || fail "node does not run"
[ "$major" -ge 20 ] || fail "node $major is too old; install Node.js 20 or newer"

# The lock lives as long as descriptor 9 is open, so a killed run frees it.
exec 9>"$tools/$name.lock"
if command -v flock >/dev/null 2>&1; then
	flock 9 || fail "cannot lock $tools/$name.lock"
fi

if ! installed; then
	mkdir -p "$target"
	rm -f "$target/.installed"
	cp "$manifest/package.json" "$manifest/package-lock.json" "$target/"
	log=$target/install.log
	if ! (cd "$target" && npm ci --omit=dev --no-audit --no-fund --ignore-scripts \
		--cache "$tools/npm-cache-$name" >"$log" 2>&1 9>&-); then
		tail -n 20 "$log" >&2
		fail "npm failed; the log is $log"
	fi
	[ -f "$file" ] || fail "npm finished, but $file is missing"
	rm -rf "$tools/npm-cache-$name"
	echo "$want" >"$target/.installed"
fi
echo "$file"
