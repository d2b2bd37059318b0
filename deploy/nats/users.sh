#!/bin/sh
# Makes the keys of a swarm: `coordinator` and `slot-0` … for the NATS server, and `users.conf` with what each may do.
#
#   users.sh SLOTS [FOLDER]
#
# An agent with the key of a slot can take that slot alone, report for that slot alone, and read orders and files. It cannot
# give orders: they are signed with the coordinator's signing key, which is no key of the server.
set -eu

slots=${1:?"usage: users.sh SLOTS [FOLDER]"}
folder=${2:-.}
loadlab=${LOADLAB:-loadlab}

umask 077
mkdir -p "$folder"
cd "$folder"

coordinator=$("$loadlab" agent --new-key coordinator 2>/dev/null)
{
  cat <<EOF
users: [
  { nkey: $coordinator, permissions: {
      publish: { allow: ["loadlab.>", "\$JS.API.>", "_INBOX.>"] }
      subscribe: { allow: ["loadlab.>", "_INBOX.coordinator.>"] } } }
EOF
  slot=0
  while [ "$slot" -lt "$slots" ]; do
    key=$("$loadlab" agent --new-key "slot-$slot" 2>/dev/null)
    cat <<EOF
  { nkey: $key, permissions: {
      publish: { allow: [
        "loadlab.*.kept.slot.$slot.>", "loadlab.*.heartbeat.$slot.*", "loadlab.*.time",
        "\$JS.API.STREAM.INFO.*", "\$JS.API.CONSUMER.MSG.NEXT.*.*",
        "\$JS.API.CONSUMER.CREATE.*", "\$JS.API.CONSUMER.CREATE.*.>", "\$JS.API.CONSUMER.DELETE.*.*" ] }
      subscribe: { allow: ["loadlab.announce", "loadlab.*.alive.$slot.*", "_INBOX.slot$slot.>"] }
      allow_responses: true } }
EOF
    slot=$((slot + 1))
  done
  echo "]"
} >users.conf
echo "wrote users.conf, coordinator and slot-0 to slot-$((slots - 1)) in $(pwd)"
