#!/bin/sh
# Runs the server on 127.0.0.1:PORT, or on the address in ADDRESS, with its data in DIRECTORY: ./run.sh PORT DIRECTORY.
# `../build.sh elasticsearch` comes first.
set -eu
if ! command -v java >/dev/null; then
    echo "java is not installed: apt-get install default-jre-headless" >&2
    exit 1
fi
server=$(dirname "$0")/target/server
if [ ! -f "$server/elasticsearch.jar" ]; then
    echo "$server is not there: $(dirname "$0")/../build.sh elasticsearch makes it" >&2
    exit 1
fi
exec java -Xms512m -Xmx512m -cp "$server/elasticsearch.jar:$server/lib/*" Elasticsearch "$1" "$2"
