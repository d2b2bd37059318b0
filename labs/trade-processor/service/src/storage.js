// The storage: `POST /batches` takes what a worker has read, and answers 204 once Redis has it. The same message may
// arrive any number of times. `GET /stats` reports how much is stored.
import { readFileSync } from 'node:fs';
import http from 'node:http';
import Redis from 'ioredis';

const { ADDRESS = '127.0.0.1', PORT = '8081', REDIS = 'redis://127.0.0.1:6379' } = process.env;
const LARGEST_BYTES = 4 * 1024 * 1024;

// Without Redis a batch is refused at once: the worker still has it and retries.
const redis = new Redis(REDIS, {
  enableOfflineQueue: false,
  maxRetriesPerRequest: 0,
  retryStrategy: () => 250,
});
redis.on('error', () => {});
/** The keys that the script touches, in its order. */
const KEYS = ['seen', 'users', 'messages', 'batches', 'rates', 'countries', 'sold', 'bought', 'flows', 'wrong'];
redis.defineCommand('store', {
  numberOfKeys: KEYS.length,
  lua: readFileSync(new URL('store.lua', import.meta.url), 'utf8'),
});

const sum = (counts) => Object.values(counts).reduce((all, count) => all + Number(count), 0);

async function stats() {
  const [messages, batches, wrong] = await Promise.all([
    redis.get('messages'),
    redis.get('batches'),
    redis.hgetall('wrong'),
  ]);
  const [stored, dropped] = [Number(messages ?? 0), sum(wrong)];
  const counts = Object.fromEntries(Object.entries(wrong).map(([why, count]) => [why, Number(count)]));
  return { stored, dropped, handled: stored + dropped, batches: Number(batches ?? 0), wrong: { json: 0, ...counts } };
}

async function body(request) {
  const parts = [];
  let bytes = 0;
  for await (const part of request) {
    bytes += part.length;
    if (bytes > LARGEST_BYTES) return null;
    parts.push(part);
  }
  return Buffer.concat(parts).toString();
}

async function handle(request, answer) {
  const where = `${request.method} ${request.url}`;
  if (where === 'POST /batches') {
    const batch = await body(request);
    if (batch === null) return answer.writeHead(413).end();
    await redis.store(...KEYS, batch);
    return answer.writeHead(204).end();
  }
  if (where === 'GET /health') {
    await redis.ping();
    return answer.writeHead(204).end();
  }
  if (where === 'GET /stats') {
    const text = JSON.stringify(await stats());
    return answer.writeHead(200, { 'content-type': 'application/json' }).end(text);
  }
  return answer.writeHead(404).end();
}

const server = http.createServer((request, answer) => {
  handle(request, answer).catch((error) => {
    // Log a batch that Redis itself rejects; the worker keeps it.
    if (redis.status === 'ready') console.error(`${request.url}: ${error.message}`);
    if (!answer.headersSent) answer.writeHead(503).end();
  });
});
server.keepAliveTimeout = 60_000;
server.listen({ host: ADDRESS, port: Number(PORT) });
process.on('SIGTERM', () => process.exit(0));
