#!/bin/sh
# Installs what package-lock.json names, once; says in one line what is missing.
set -eu
cd "$(dirname "$0")"
for program in node:nodejs npm:npm; do
    if ! command -v "${program%:*}" >/dev/null; then
        echo "${program%:*} is not installed: apt-get install ${program#*:} (Node.js 20.19 or newer)" >&2
        exit 1
    fi
done
if ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)'; then
    echo "Node.js $(node --version) is too old for the MongoDB driver: 20.19 or newer, as of Debian 13 or nodejs.org" >&2
    exit 1
fi
if [ node_modules/.package-lock.json -nt package-lock.json ]; then
    exit 0
fi
npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
touch node_modules/.package-lock.json
