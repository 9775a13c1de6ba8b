#!/bin/sh
# Installs what the tests marked `extra` need and this machine lacks: axe-core (npm), Chromium,
# PostgreSQL, MariaDB and LibreOffice (Debian's packages). The tests start a server of their own;
# none needs to run.
set -eu
axe="$(dirname "$0")/node_modules/axe-core"
if [ ! -d "$axe" ] && command -v npm >/dev/null 2>&1; then
    npm install --silent --no-save --prefix "$(dirname "$0")" axe-core@4
fi
missing=""
command -v chromium >/dev/null 2>&1 || missing="chromium fonts-dejavu-core"
if ! command -v initdb >/dev/null 2>&1 && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    missing="$missing postgresql"
fi
command -v mariadbd >/dev/null 2>&1 || [ -x /usr/sbin/mariadbd ] || missing="$missing mariadb-server"
command -v soffice >/dev/null 2>&1 || missing="$missing libreoffice-calc"
[ -z "$missing" ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install with this system's package manager, as there is no apt-get here: $missing" >&2
    exit 1
fi
root=""
if [ "$(id -u)" -ne 0 ]; then
    root="sudo"
fi
$root apt-get update
# shellcheck disable=SC2086 # several packages
$root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
