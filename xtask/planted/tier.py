"""A tier of a planted system: http.server, a thread for each connection, with a pool of connections to the next tier."""

import argparse
import http.client
import queue
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

options = argparse.ArgumentParser()
options.add_argument("--listen", required=True, help="HOST:PORT")
options.add_argument("--upstream", help="the next tier, HOST:PORT, asked after the own work")
options.add_argument("--pool", type=int, default=0, help="connections to it; 0: each thread has its own")
options.add_argument("--before", help="a tier that is asked before the own work, on a pool of 20 connections")
options.add_argument("--sleep-ms", type=float, default=0, help="own work that waits")
options = options.parse_args()


class Pool:
    """So many connections, made on first use; who finds none free waits."""

    def __init__(self, address, size):
        self.free = queue.Queue()
        for _ in range(size):
            self.free.put(http.client.HTTPConnection(address))

    def get(self):
        connection = self.free.get()
        try:
            return get(connection)
        finally:
            self.free.put(connection)


def get(connection):
    connection.request("GET", "/")
    return connection.getresponse().read()


pool = Pool(options.upstream, options.pool) if options.pool else None
before = Pool(options.before, 20) if options.before else None
own = threading.local()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are written separately: with Nagle's algorithm the body would wait for the client's
    # acknowledgement of the headers.
    disable_nagle_algorithm = True

    def do_GET(self):
        if before:
            before.get()
        if options.sleep_ms:
            time.sleep(options.sleep_ms / 1000)
        if pool:
            pool.get()
        elif options.upstream:
            if not hasattr(own, "connection"):
                own.connection = http.client.HTTPConnection(options.upstream)
            get(own.connection)
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"ok\n")

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


host, port = options.listen.split(":")
Server((host, int(port)), Handler).serve_forever()
