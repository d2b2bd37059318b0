#!/bin/sh
# RabbitMQ as a component: its own node, folders, ports and epmd, all of which end with this script, whoever it is run by
# and whatever service of the machine runs beside it.
#     rabbitmq.sh            in FOLDER, at ADDRESS: ports AMQP_PORT, METRICS_PORT, DIST_PORT, EPMD_PORT
#     rabbitmq.sh --check    is it installed?
set -eu
server=/usr/lib/rabbitmq/bin/rabbitmq-server
if [ ! -x "$server" ] || ! command -v epmd >/dev/null; then
    echo "RabbitMQ is not installed: apt-get install rabbitmq-server" >&2
    exit 1
fi
[ "${1:-}" = --check ] && exit

mkdir -p "$FOLDER"
cat >"$FOLDER/rabbitmq.conf" <<END
listeners.tcp.1 = $ADDRESS:$AMQP_PORT
prometheus.tcp.ip = $ADDRESS
prometheus.tcp.port = $METRICS_PORT
loopback_users = none
# How often queue lengths are updated, in ms.
collect_statistics_interval = 1000
log.file = false
log.console = true
log.console.level = warning
END
echo '[rabbitmq_prometheus].' >"$FOLDER/enabled_plugins"

export HOME="$FOLDER" # the cookie
export ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$EPMD_PORT"
export RABBITMQ_CONF_ENV_FILE=/dev/null
export RABBITMQ_NODENAME=trade-processor@localhost RABBITMQ_DIST_PORT="$DIST_PORT"
export RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='-kernel inet_dist_use_interface {127,0,0,1}'
export RABBITMQ_CONFIG_FILE="$FOLDER/rabbitmq.conf" RABBITMQ_ENABLED_PLUGINS_FILE="$FOLDER/enabled_plugins"
export RABBITMQ_MNESIA_BASE="$FOLDER/mnesia" RABBITMQ_LOG_BASE="$FOLDER/log" RABBITMQ_GENERATED_CONFIG_DIR="$FOLDER/config"
export RABBITMQ_PID_FILE="$FOLDER/pid"

# An epmd that RabbitMQ would start leaves its group and outlives it; one that is there already is used.
epmd &
epmd=$!
"$server" &
server=$!
trap 'kill -TERM $server; wait $server || true; kill $epmd || true; exit 0' TERM INT
status=0
wait $server || status=$?
kill $epmd || true
exit $status
