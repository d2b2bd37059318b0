// The endpoint: `POST /` takes a message as it is, and answers 204 once RabbitMQ has confirmed that it is on disk.
// Whether the message is valid is for the workers to find out.
//
// While RabbitMQ is unreachable, or blocks publishers (an alarm of its memory or disk), messages wait for at most
// HOLD_MS and are then refused with 503; while it accepts them, however slowly, they wait for its confirmation.
// MOST_WAITING limits how many may wait. Messages that were sent but not confirmed when a connection ended are sent
// again under the same id, so that one of them may be in the queue twice: the storage keeps one.
//
// Run it with NODE_CLUSTER_SCHED_POLICY=none if there are many connections: each process then accepts for itself. By
// default the first one accepts all of them and hands them over one at a time. Either way, a process closes connections
// for which it has no open file left.
import cluster from 'node:cluster';
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { closeTogether, keepConnected, QUEUE } from './queue.js';

const { ADDRESS = '127.0.0.1', PORT = '8080', AMQP = 'amqp://127.0.0.1:5672' } = process.env;
const PROCESSES = Number(process.env.PROCESSES ?? 4);
const HOLD_MS = Number(process.env.HOLD_MS ?? 20_000);
const LARGEST_BYTES = 64 * 1024;
/** The requested length of the accept queue; the kernel grants at most `net.core.somaxconn`. */
const BACKLOG = Number(process.env.BACKLOG ?? 65_535);
/** The most messages that a process holds; it refuses more. */
const MOST_WAITING = Number(process.env.MOST_WAITING ?? 50_000);

if (cluster.isPrimary) {
  primary();
} else {
  consume();
}

/** Starts the worker processes, and lets them listen once all of them are connected to RabbitMQ. */
function primary() {
  const connected = new Set();
  let started = false;
  let alive = 0;
  const start = () => {
    alive += 1;
    cluster.fork();
  };
  for (let i = 0; i < PROCESSES; i += 1) start();
  cluster.on('message', (worker) => {
    connected.add(worker.id);
    if (!started && connected.size < PROCESSES) return;
    started = true;
    for (const worker of Object.values(cluster.workers)) worker.send('listen');
  });
  let stopping = false;
  cluster.on('exit', (worker, code, signal) => {
    alive -= 1;
    connected.delete(worker.id);
    if (stopping) {
      if (alive === 0) process.exit(0);
      return;
    }
    console.error(`process ${worker.process.pid} ended (${signal ?? code}): another one is started`);
    start();
  });
  // Each worker process exits once it has answered what it holds.
  process.on('SIGTERM', () => {
    stopping = true;
    for (const worker of Object.values(cluster.workers)) worker.process.kill('SIGTERM');
  });
}

function consume() {
  /** Messages that RabbitMQ has not confirmed, by id: `{ body, answer, timer }`, the oldest first. */
  const waiting = new Map();
  let channel = null;
  let told = false;
  /** Whether RabbitMQ is connected but accepts no more for now. */
  let blocked = false;
  let ending = false;
  const name = randomUUID();
  let count = 0;

  keepConnected(AMQP, {
    async onUp(connection) {
      const own = await connection.createConfirmChannel();
      closeTogether(connection, own);
      channel = own;
      blocked = false;
      connection.on('blocked', () => {
        blocked = true;
        for (const id of waiting.keys()) hold(id);
      });
      connection.on('unblocked', () => {
        blocked = false;
        for (const { timer } of waiting.values()) clearTimeout(timer);
      });
      for (const id of waiting.keys()) publish(id);
      if (!told) process.send('connected');
      told = true;
    },
    onDown() {
      channel = null;
      for (const id of waiting.keys()) hold(id);
    },
  });

  /** Refuses a message unless RabbitMQ is back in time. */
  function hold(id) {
    const message = waiting.get(id);
    if (!message) return;
    clearTimeout(message.timer);
    message.timer = setTimeout(() => settle(id, 503), HOLD_MS);
  }

  function publish(id) {
    if (blocked) hold(id);
    else clearTimeout(waiting.get(id).timer);
    const options = { persistent: true, messageId: id, contentType: 'application/json' };
    try {
      channel.sendToQueue(QUEUE, waiting.get(id).body, options, (error) => {
        // Either the connection ended, and the message is sent again over the next one; or RabbitMQ rejected it.
        if (error) hold(id);
        else settle(id, 204);
      });
    } catch {
      hold(id); // it is ending
    }
  }

  /** Answers a message, unless it was answered before. */
  function settle(id, status) {
    const message = waiting.get(id);
    if (!message) return;
    waiting.delete(id);
    clearTimeout(message.timer);
    reply(message.answer, status);
    if (ending && waiting.size === 0) end();
  }

  /** Exits once the last answer has been sent. */
  function end() {
    server.closeIdleConnections();
    setImmediate(() => process.exit(0));
  }

  function accept(body, answer) {
    if (ending || waiting.size >= MOST_WAITING) return reply(answer, 503);
    count += 1;
    const id = `${name}-${count}`;
    waiting.set(id, { body, answer, timer: null });
    if (channel) publish(id);
    else hold(id);
  }

  const server = http.createServer((request, answer) => {
    if (request.url !== '/') return reply(answer, request.url === '/health' ? 204 : 404);
    if (request.method !== 'POST') return reply(answer, 405);
    const parts = [];
    let bytes = 0;
    request.on('data', (part) => {
      bytes += part.length;
      if (bytes <= LARGEST_BYTES) parts.push(part);
    });
    request.on('end', () => {
      if (bytes > LARGEST_BYTES) reply(answer, 413);
      else if (bytes === 0) reply(answer, 400);
      else accept(Buffer.concat(parts), answer);
    });
  });
  server.keepAliveTimeout = 120_000;
  // With hundreds of thousands of connections a process reads a request minutes after it has accepted the connection.
  // That is no reason to answer 408.
  server.requestTimeout = 600_000;
  server.headersTimeout = 600_000;
  process.on('message', (word) => {
    if (word !== 'listen' || server.listening) return;
    server.listen({ host: ADDRESS, port: Number(PORT), backlog: BACKLOG });
  });
  process.on('SIGTERM', () => {
    ending = true;
    server.close();
    if (waiting.size === 0) end();
  });
  process.on('disconnect', () => process.exit(0)); // the primary is gone
}

function reply(answer, status) {
  if (status === 503) answer.setHeader('Retry-After', '1');
  answer.writeHead(status).end();
}
