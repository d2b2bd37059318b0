#!/bin/sh
# For a profile that lengthens the accept queues of the network it runs in: ends with an error unless that is a
# namespace with a name (see ip-netns(8)). The machine's own network has none.
set -eu
for name in /run/netns/*; do
    if [ "$name" -ef /proc/self/ns/net ]; then
        exit 0
    fi
done
echo "this profile would change the machine's accept queues: \`cargo xtask long --only agents\` runs it in a separate network" >&2
exit 1
