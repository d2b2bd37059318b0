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

# Prints the public part of a new key.
new_key() {
  if [ -e "$1" ]; then
    echo "users.sh: $(pwd)/$1 is there already: remove the keys, or choose another folder" >&2
    exit 1
  fi
  "$loadlab" agent --new-key "$1" 2>/dev/null
}

coordinator=$(new_key coordinator)
{
  cat <<EOF
users: [
  { nkey: $coordinator, permissions: {
      publish: { allow: ["loadlab.>", "\$JS.API.>", "_INBOX.>"] }
      subscribe: { allow: ["loadlab.>", "_INBOX.coordinator.>"] } } }
EOF
  slot=0
  while [ "$slot" -lt "$slots" ]; do
    key=$(new_key "slot-$slot")
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
} >users.conf.new
mv users.conf.new users.conf
echo "wrote users.conf, coordinator and slot-0 to slot-$((slots - 1)) in $(pwd)"
