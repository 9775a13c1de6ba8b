#!/bin/sh
# Installs what the tests marked `extra` need and this machine lacks: Chromium (Debian's package).
set -eu
command -v chromium >/dev/null 2>&1 && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "install Chromium with this system's package manager: no apt-get here" >&2
    exit 1
fi
root=""
if [ "$(id -u)" -ne 0 ]; then
    root="sudo"
fi
$root apt-get update
$root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-dejavu-core
