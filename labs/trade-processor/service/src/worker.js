// A worker takes messages from the queue, reads each one, and hands them to the storage in batches. A batch is
// acknowledged when the storage has answered, and not before: one that was under way when something broke is
// delivered again, perhaps to another worker and cut otherwise, and the storage knows which of it is new.
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { keepConnected, QUEUE } from './queue.js';
import { read } from './trade.js';

const { AMQP = 'amqp://127.0.0.1:5672', STORAGE = 'http://127.0.0.1:8081' } = process.env;
const BATCH = Number(process.env.BATCH ?? 200);
/** To see what it is good for: acknowledges a batch before the storage has it, and loses it when either dies. */
const CARELESS = process.env.CARELESS === 'early';
/** How long a batch waits for more, and how long after a failure it is tried again. */
const GATHER_MS = 20;
const AGAIN_MS = 250;
const ANSWER_WITHIN_MS = 10_000;

const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

keepConnected(AMQP, {
  async onUp(connection) {
    const channel = await connection.createChannel();
    let open = true;
    channel.on('error', () => {});
    channel.on('close', () => { open = false; });
    connection.once('close', () => { open = false; });
    await channel.prefetch(2 * BATCH); // one batch on its way, one gathering
    await work(channel, () => open);
  },
});

/** Gathers and hands over, one batch at a time, for as long as the channel lives. */
async function work(channel, isOpen) {
  const gathered = [];
  let wake = () => {};
  await channel.consume(QUEUE, (delivery) => {
    if (delivery === null) return;
    gathered.push(delivery);
    wake();
  });
  const acknowledge = (batch) => {
    try {
      channel.ack(batch.at(-1), true);
    } catch (error) {
      // The channel ended a moment ago: the batch is delivered again, and the storage knows it.
      console.error(`a batch could not be acknowledged: ${error.message}`);
    }
  };
  const more = () => new Promise((done) => { wake = done; });
  (async () => {
    while (isOpen()) {
      if (gathered.length === 0) await Promise.race([more(), pause(AGAIN_MS)]);
      if (gathered.length === 0) continue;
      if (gathered.length < BATCH) await pause(GATHER_MS);
      const batch = gathered.splice(0, BATCH);
      if (CARELESS) acknowledge(batch);
      if ((await handOver(batch.map(entry), isOpen)) && !CARELESS) acknowledge(batch);
    }
  })();
}

/** A message under the id that the consumer gave it; without one it cannot be told from others, and is new. */
function entry(delivery) {
  return { id: delivery.properties.messageId ?? randomUUID(), ...read(delivery.content) };
}

/** Until the storage has it: true; or until it is not this worker's any more. */
async function handOver(batch, isOpen) {
  const body = JSON.stringify(batch);
  while (isOpen()) {
    try {
      const status = await post(body);
      if (status === 204) return isOpen();
      console.error(`the storage answered ${status}`);
    } catch (error) {
      console.error(`the storage cannot be reached: ${error.code ?? error.message}`);
    }
    await pause(AGAIN_MS);
  }
  return false;
}

function post(body) {
  return new Promise((done, failed) => {
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
    const request = http.request(`${STORAGE}/batches`, { method: 'POST', agent, headers }, (answer) => {
      answer.resume();
      answer.on('end', () => done(answer.statusCode));
      answer.on('error', failed);
    });
    request.setTimeout(ANSWER_WITHIN_MS, () => request.destroy(new Error('no answer')));
    request.on('error', failed);
    request.end(body);
  });
}

process.on('SIGTERM', () => process.exit(0));
