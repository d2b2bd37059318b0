#!/bin/sh
# Makes target/server of a part with Maven, unless it is newer than what it is made of: ./build.sh PART. Builds at one
# time wait for each other, and a server that runs keeps the files it was started on.
set -eu
part=$1
cd "$(dirname "$0")/$part"
jar=target/server/$part.jar

fresh() {
    [ -f "$jar" ] && [ -z "$(find pom.xml src -newer "$jar")" ]
}
if fresh; then
    exit 0
fi
for program in mvn:maven javac:default-jdk-headless; do
    if ! command -v "${program%:*}" >/dev/null; then
        echo "${program%:*} is not installed: apt-get install ${program#*:}" >&2
        exit 1
    fi
done
mkdir -p target
exec 9>target/lock
flock 9
if fresh; then # another build was at it
    exit 0
fi
touch target/begun # sources that change while it builds are newer than the jar
mvn --quiet --batch-mode --strict-checksums --no-transfer-progress "-Dout=$PWD/target/building" clean package
touch -r target/begun "target/building/$part.jar"
rm -rf target/server
mkdir target/server
if [ -d target/building/lib ]; then
    mv target/building/lib target/server
fi
mv "target/building/$part.jar" target/server # last, since it says that all is there
rm -rf target/building target/begun
