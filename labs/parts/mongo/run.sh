#!/bin/sh
# Runs the server on 127.0.0.1:PORT, or on the address in ADDRESS, with its data in FILE: ./run.sh PORT FILE.
# `../build.sh mongo` comes first. With `passing` behind FILE nothing is left of it when the server ends, however it does.
set -eu
if ! command -v java >/dev/null; then
    echo "java is not installed: apt-get install default-jre-headless" >&2
    exit 1
fi
jar=$(dirname "$0")/target/server/mongo.jar
if [ ! -f "$jar" ]; then
    echo "$jar is not there: $(dirname "$0")/../build.sh mongo makes it" >&2
    exit 1
fi
# One collector thread and one compiler, so that it takes as little as it can of cores that others are measured on.
exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -jar "$jar" "$@"
