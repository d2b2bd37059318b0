// The endpoint: `POST /` takes a message as it is and answers 204 once RabbitMQ has confirmed that it is on disk.
// Whether the message is any good is for the workers to find out.
//
// While RabbitMQ is away, or takes no more (an alarm of its memory or disk), messages wait, HOLD_MS at most, and are then
// refused with 503; while it takes them, however slowly, they wait for its word. MOST_WAITING bounds how many do.
// Messages that were sent and not confirmed when a connection ended are sent again under the same id, so that one of
// them may be in the queue twice: the storage keeps one.
//
// Run it with NODE_CLUSTER_SCHED_POLICY=none where there are many connections: each process then accepts for itself, and only
// what it can look after. By default the first one accepts all, hands them on one at a time, and closes those for which it
// has no open file left.
import cluster from 'node:cluster';
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { keepConnected, QUEUE } from './queue.js';

const { ADDRESS = '127.0.0.1', PORT = '8080', AMQP = 'amqp://127.0.0.1:5672' } = process.env;
const PROCESSES = Number(process.env.PROCESSES ?? 4);
const HOLD_MS = Number(process.env.HOLD_MS ?? 20_000);
const LARGEST_BYTES = 64 * 1024;
/** The longest accept queue that is asked for; `net.core.somaxconn` is the longest that is given. */
const BACKLOG = Number(process.env.BACKLOG ?? 65_535);
/** The most messages that a process holds; more are refused. */
const MOST_WAITING = Number(process.env.MOST_WAITING ?? 50_000);

if (cluster.isPrimary) {
  primary();
} else {
  consume();
}

/** Starts the others, and has them listen when all of them have reached RabbitMQ. */
function primary() {
  let connected = 0;
  let alive = 0;
  const start = () => {
    alive += 1;
    cluster.fork();
  };
  for (let i = 0; i < PROCESSES; i += 1) start();
  cluster.on('message', () => {
    connected += 1;
    if (connected < PROCESSES) return;
    for (const worker of Object.values(cluster.workers)) worker.send('listen');
  });
  let stopping = false;
  cluster.on('exit', (worker, code, signal) => {
    alive -= 1;
    if (stopping) {
      if (alive === 0) process.exit(0);
      return;
    }
    console.error(`process ${worker.process.pid} ended (${signal ?? code}): another one is started`);
    start();
  });
  // Each of the others ends when it has answered what it holds.
  process.on('SIGTERM', () => {
    stopping = true;
    for (const worker of Object.values(cluster.workers)) worker.process.kill('SIGTERM');
  });
}

function consume() {
  /** By message id what RabbitMQ has not confirmed: `{ body, answer, timer }`, the oldest first. */
  const waiting = new Map();
  let channel = null;
  let told = false;
  /** RabbitMQ is there, and takes no more for now. */
  let blocked = false;
  let ending = false;
  const name = randomUUID();
  let count = 0;

  keepConnected(AMQP, {
    async onUp(connection) {
      const own = await connection.createConfirmChannel();
      // A channel that RabbitMQ closes takes its connection along, so that both are made anew.
      own.on('error', () => connection.close().catch(() => {}));
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

  /** Refuses a message if RabbitMQ does not come back in time. */
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
        // The connection ended, and it is sent again over the next one; or RabbitMQ did not take it.
        if (error) hold(id);
        else settle(id, 204);
      });
    } catch {
      hold(id); // it is ending
    }
  }

  /** Answers a message, if nobody has yet. */
  function settle(id, status) {
    const message = waiting.get(id);
    if (!message) return;
    waiting.delete(id);
    clearTimeout(message.timer);
    reply(message.answer, status);
    if (ending && waiting.size === 0) end();
  }

  /** Ends the process once the last answer is on its way. */
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
