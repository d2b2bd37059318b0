// The live page and its updates. Redis reports that something was stored; at most once per PUSH_MS, all open pages are
// sent the current state as server-sent events. A page never polls.
import { readFileSync } from 'node:fs';
import http from 'node:http';
import Redis from 'ioredis';

const { ADDRESS = '127.0.0.1', PORT = '8082', REDIS = 'redis://127.0.0.1:6379' } = process.env;
const PUSH_MS = 250;
/** The longest wait for Redis when the process is to end. */
const LAST_LOOK_MS = 5000;
/** The most that a page may leave unread. */
const MOST_UNREAD_BYTES = 1024 * 1024;

const page = (name) => readFileSync(new URL(`../page/${name}`, import.meta.url));
const FILES = {
  '/': ['text/html; charset=utf-8', page('index.html')],
  '/page.css': ['text/css; charset=utf-8', page('page.css')],
  '/page.js': ['text/javascript; charset=utf-8', page('page.js')],
  '/world.js': ['text/javascript; charset=utf-8', page('world.js')],
};

const options = { maxRetriesPerRequest: 1, retryStrategy: () => 250 };
const redis = new Redis(REDIS, options);
const updates = new Redis(REDIS, options);
redis.on('error', () => {});
updates.on('error', () => {});

const pages = new Set();
let state = '';
let pending = null;

async function look() {
  const found = await redis.multi()
    .get('messages').hgetall('wrong').hgetall('countries').hgetall('flows').hgetall('rates').exec();
  const [messages, wrong, countries, flows, rates] = found.map(([, value]) => value);
  state = JSON.stringify({ messages: Number(messages ?? 0), wrong, countries, flows, rates });
}

async function push() {
  const before = state;
  try {
    await look();
  } catch {
    return; // Redis is away: pages keep what they have
  }
  if (state === before) return;
  for (const answer of pages) {
    // The page reconnects once it reads again, and is then sent the current state.
    if (answer.writableLength > MOST_UNREAD_BYTES) answer.destroy();
    else answer.write(`data: ${state}\n\n`);
  }
}

/** Schedules a single update of all pages, however many batches arrive until then. */
function changed() {
  pending ??= setTimeout(() => {
    pending = null;
    push();
  }, PUSH_MS);
}

updates.on('message', changed);
// At the start, and after an outage of Redis.
updates.on('ready', () => {
  updates.subscribe('updates').catch(() => {});
  changed();
});

async function open(request, answer) {
  if (state === '') await look();
  if (request.destroyed) return; // the page is gone
  answer.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
  answer.write(`retry: 500\ndata: ${state}\n\n`);
  pages.add(answer);
  request.on('close', () => pages.delete(answer));
}

const server = http.createServer((request, answer) => {
  const refuse = (status) => answer.writeHead(status).end();
  if (request.method !== 'GET') return refuse(405);
  if (request.url === '/events') return open(request, answer).catch(() => refuse(503));
  if (request.url === '/health') return redis.ping().then(() => refuse(204), () => refuse(503));
  const [type, bytes] = FILES[request.url] ?? [];
  if (!bytes) return refuse(404);
  return answer.writeHead(200, { 'content-type': type, 'cache-control': 'no-store' }).end(bytes);
});
server.listen({ host: ADDRESS, port: Number(PORT) });

// The last update that open pages receive contains everything.
process.on('SIGTERM', async () => {
  await Promise.race([push(), new Promise((done) => setTimeout(done, LAST_LOOK_MS))]);
  for (const answer of pages) answer.end();
  server.close(() => process.exit(0));
  setTimeout(() => process.exit(0), 1000);
});
