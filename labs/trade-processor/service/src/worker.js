// A worker takes messages from the queue, reads each one, and sends them to the storage in batches. It acknowledges a
// batch only once the storage has answered: a batch in flight when something breaks is delivered again, perhaps to
// another worker and cut differently, and the storage knows which of its messages are new.
import { randomUUID } from 'node:crypto';
import http from 'node:http';
import { closeTogether, keepConnected, takeFrom } from './queue.js';
import { read } from './trade.js';

const { AMQP = 'amqp://127.0.0.1:5672', STORAGE = 'http://127.0.0.1:8081' } = process.env;
const BATCH = Number(process.env.BATCH ?? 200);
/** Shows why that matters: acknowledges a batch before the storage has it, and loses the batch when either dies. */
const CARELESS = process.env.CARELESS === 'early';
/** How long a batch waits for more messages, and how long after a failure it is retried. */
const GATHER_MS = 20;
const AGAIN_MS = 250;
const ANSWER_WITHIN_MS = 10_000;

const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

keepConnected(AMQP, {
  async onUp(connection) {
    const channel = await connection.createChannel();
    closeTogether(connection, channel);
    let open = true;
    channel.on('close', () => { open = false; });
    connection.once('close', () => { open = false; });
    await channel.prefetch(2 * BATCH); // one batch on its way, one gathering
    await work(connection, channel, () => open);
  },
});

/** Gathers messages and hands them over, one batch at a time, as long as the channel is open. */
async function work(connection, channel, isOpen) {
  const gathered = [];
  let wake = () => {};
  await takeFrom(connection, channel, (delivery) => {
    gathered.push(delivery);
    wake();
  });
  const acknowledge = (batch) => {
    try {
      channel.ack(batch.at(-1), true);
    } catch (error) {
      // The channel has just ended: the batch is delivered again, and the storage recognises it.
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

/** A message with the id that the consumer gave it; without an id it cannot be recognised, and counts as new. */
function entry(delivery) {
  return { id: delivery.properties.messageId ?? randomUUID(), ...read(delivery.content) };
}

/** Retries until the storage has the batch, and returns true; or until the batch is no longer this worker's. */
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
