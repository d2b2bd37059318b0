#!/bin/sh
# serve.sh FOLDER PORT bucket RATE: nginx that lets RATE requests a second through and refuses the others.
# serve.sh FOLDER PORT pool|cpu …: the server of this folder, built as `capacity-go`.
set -e
if [ "$3" != bucket ]; then
    shift
    exec capacity-go "$@"
fi
mkdir -p "$1/nginx"
cat > "$1/nginx/$2.conf" <<CONF
daemon off;
pid $1/nginx/$2.pid;
error_log stderr emerg;
worker_processes 1;
events { worker_connections 4096; }
http {
    access_log off;
    client_body_temp_path $1/nginx/body;
    proxy_temp_path $1/nginx/proxy;
    fastcgi_temp_path $1/nginx/fastcgi;
    uwsgi_temp_path $1/nginx/uwsgi;
    scgi_temp_path $1/nginx/scgi;
    limit_req_zone \$server_name zone=all:1m rate=$4r/s;
    limit_req_status 429;
    server {
        listen 127.0.0.1:$2;
        server_name all;
        location / {
            limit_req zone=all burst=2 nodelay;
            empty_gif;
        }
    }
}
CONF
exec nginx -e stderr -c "$1/nginx/$2.conf"
