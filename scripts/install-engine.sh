#!/usr/bin/env bash
# Installs a program that tests work with, by apt and only if it is missing. No
# system service is started. Prints the folder of its programs.
#
# Usage: install-engine.sh redis|postgres|mariadb|prometheus|buildah
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
fail() { printf 'install-engine: %s\n' "$*" >&2; exit 1; }

case ${1-} in
redis)      package=redis-server   program=redis-server ;;
postgres)   package=postgresql     program=initdb ;;
mariadb)    package=mariadb-server program=mariadbd ;;
prometheus) package=prometheus     program=prometheus ;;
buildah)    package=buildah        program=buildah ;;
*)          fail "usage: install-engine.sh redis|postgres|mariadb|prometheus|buildah" ;;
esac

# Servers live in sbin, and those of PostgreSQL in a folder per version, the
# newest last.
find_program() {
  local dir found=
  for dir in ${PATH//:/ } /usr/sbin /usr/local/sbin /usr/libexec \
    $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV); do
    if [ -x "$dir/$program" ]; then
      found=$(readlink -f "$dir/$program")
      break
    fi
  done
  [ -n "$found" ] && dirname "$found"
}

if ! find_program; then
  "$here/apt-install.sh" "$package"
  find_program || fail "$package is installed, but $program is not found"
fi
