// A tier of a planted system: node:http, one thread. Options set what a request costs, and whether one waits for
// another: `--name value`.
'use strict';
const http = require('node:http');

const options = {};
for (let i = 2; i < process.argv.length; i += 2) options[process.argv[i].slice(2)] = process.argv[i + 1];
const number = (name) => Number(options[name] ?? 0);
const [host, port] = options.listen.split(':');
const agent = new http.Agent({ keepAlive: true, maxSockets: number('pool') || Infinity });

const rounds = number('rounds');
let computed = 0;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Work for the only thread: a chain of this many steps, each of which takes a nanosecond or two. */
function compute(rounds) {
  let x = rounds | 1;
  for (let i = 0; i < rounds; i++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
  }
  return x;
}

/** A token bucket, filled at a rate: a request that finds no token waits for its turn. */
class TokenBucket {
  constructor(perSecond, most) {
    this.perSecond = perSecond;
    this.tokens = this.most = most;
    this.waiting = [];
    setInterval(() => this.fill(), 5).unref();
    this.filled = performance.now();
  }

  fill() {
    const now = performance.now();
    this.tokens = Math.min(this.most, this.tokens + ((now - this.filled) * this.perSecond) / 1000);
    this.filled = now;
    while (this.tokens >= 1 && this.waiting.length > 0) {
      this.tokens -= 1;
      this.waiting.shift()();
    }
  }

  take() {
    return new Promise((resolve) => {
      this.waiting.push(resolve);
      this.fill();
    });
  }
}

/** Long-lived objects, some of which each request replaces: the collector has to visit all of them. */
class Sessions {
  constructor(count) {
    this.all = Array.from({ length: count }, (_, id) => this.make(id));
  }

  make(id) {
    return { id, name: `user ${id}`, seen: new Date(), roles: ['reader', 'writer'], next: { id: id + 1 } };
  }

  replace(count) {
    for (let i = 0; i < count; i++) {
      const at = Math.floor(Math.random() * this.all.length);
      this.all[at] = this.make(at);
    }
  }
}

const bucket = options.rate && new TokenBucket(number('rate'), 5);
const sessions = options.sessions && new Sessions(number('sessions'));
const subscribers = new Set();
if (options['push-ms']) {
  setInterval(() => subscribers.forEach((s) => s.write(`data: ${Date.now()}\n\n`)), number('push-ms'));
}

function ask(address) {
  return new Promise((resolve, reject) => {
    const [host, port] = address.split(':');
    const request = http.get({ host, port, agent }, (response) => {
      response.resume();
      response.on('end', resolve);
      response.on('error', reject);
    });
    request.on('error', reject);
  });
}

/** Sends the same piece again and again until the client leaves: a download that never ends. */
async function download(response) {
  const piece = Buffer.alloc(16384, 'x');
  response.writeHead(200, { 'content-type': 'application/octet-stream' });
  let open = true;
  response.on('close', () => { open = false; });
  while (open) {
    response.write(piece);
    await sleep(20);
  }
}

/** Answers a long poll when it times out. */
async function poll(response) {
  await sleep(number('poll-ms'));
  response.end('nothing new\n');
}

async function handle(request, response) {
  if (request.url === '/events') {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    subscribers.add(response);
    response.on('close', () => subscribers.delete(response));
    return;
  }
  if (request.url === '/download') return download(response);
  if (request.url === '/poll') return poll(response);
  if (bucket) await bucket.take();
  if (number('sleep-ms')) await sleep(number('sleep-ms'));
  computed ^= compute(rounds);
  if (sessions) sessions.replace(number('replace'));
  for (const upstream of options.upstream?.split(',') ?? []) await ask(upstream);
  response.end('ok\n');
}

/** What the tier does beside its requests: it follows a download or an event stream, or polls again and again. */
function follow(address, path) {
  const [host, port] = address.split(':');
  const again = () => setTimeout(() => follow(address, path), 100);
  const request = http.get({ host, port, path, agent }, (response) => {
    response.resume();
    response.on('end', () => follow(address, path));
    response.on('error', again);
  });
  request.on('error', again);
}

for (const [option, path] of [['downloads', '/download'], ['subscribes', '/events'], ['polls', '/poll']]) {
  const [address, count] = options[option]?.split('x') ?? [];
  for (let i = 0; i < Number(count ?? 0); i++) follow(address, path);
}

const server = http.createServer((request, response) => {
  handle(request, response).catch((error) => {
    response.statusCode = 502;
    response.end(`${error.message}\n`);
  });
});
server.keepAliveTimeout = 60_000;
server.listen(Number(port), host);
