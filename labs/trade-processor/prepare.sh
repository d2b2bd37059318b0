#!/bin/sh
# What the lab needs: says what is missing in a line, and has npm fetch the two libraries of the service, once.
set -eu
missing=
for program in node:nodejs npm:npm redis-server:redis-server redis-cli:redis-tools; do
    command -v "${program%:*}" >/dev/null || missing="$missing ${program#*:}"
done
if [ -n "$missing" ]; then
    echo "not installed: apt-get install$missing" >&2
    exit 1
fi
if ! node -e 'process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)'; then
    echo "Node.js $(node --version) is too old for the Redis client: 20 or newer is needed, as in Debian 13 or from nodejs.org" >&2
    exit 1
fi
cd "$(dirname "$0")/service"
npm ls >/dev/null 2>&1 || npm ci --no-audit --no-fund --ignore-scripts
