#!/bin/sh
# Starts an nginx of this lab on a configuration made from a template, as the official image does:
#   LISTEN=… SCRATCH=… ./nginx.sh edge.conf.template
# SCRATCH is its own folder: made anew, so that every start finds an empty cache. `./nginx.sh --check` says what is missing.
set -eu
PATH=$PATH:/usr/sbin:/usr/local/sbin
if ! command -v nginx >/dev/null; then
    echo "nginx is not installed: apt-get install nginx-light" >&2
    exit 1
fi
if [ "$1" = --check ]; then
    exit 0
fi
# Each program that starts here costs a component under a limit of 1 % a tenth of a second or more.
[ ! -e "$SCRATCH" ] || rm -rf "$SCRATCH"
mkdir -p "$SCRATCH"
awk '{
    while (match($0, /[$][{][A-Z0-9_]+[}]/)) {
        name = substr($0, RSTART + 2, RLENGTH - 3)
        if (!(name in ENVIRON)) { print name " is not set" > "/dev/stderr"; exit 1 }
        $0 = substr($0, 1, RSTART - 1) ENVIRON[name] substr($0, RSTART + RLENGTH)
    }
    print
}' "$1" >"$SCRATCH/nginx.conf"
# Workers of root become somebody else, who may not enter the folder of a run.
user=
if [ "$(id -u)" = 0 ]; then
    user='user root;'
fi
exec nginx -p "$SCRATCH" -c nginx.conf -e stderr -g "daemon off; pid nginx.pid; $user"
