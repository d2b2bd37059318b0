// What the parts do when RabbitMQ or Redis lets them down.
//   node --test labs/trade-processor/service/src/outages.test.js
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import net from 'node:net';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { closeTogether, takeFrom } from './queue.js';

/** A channel that delivers what `deliver` is given, and a connection that counts how often it is closed. */
function connected() {
  const connection = { closed: 0, close: async () => { connection.closed += 1; } };
  const channel = new EventEmitter();
  channel.consume = async (_, onMessage) => { channel.deliver = onMessage; };
  return { connection, channel };
}

test('a connection whose channel or consumer RabbitMQ ends is made anew', async () => {
  const { connection, channel } = connected();
  closeTogether(connection, channel);
  const taken = [];
  await takeFrom(connection, channel, (delivery) => taken.push(delivery));
  channel.deliver('a message');
  assert.deepEqual([taken, connection.closed], [['a message'], 0]);
  channel.deliver(null); // the consumer is cancelled
  assert.deepEqual([taken, connection.closed], [['a message'], 1]);
  channel.emit('error', new Error('PRECONDITION_FAILED'));
  assert.equal(connection.closed, 2);
});

test('the front end ends, even if Redis does not answer', { timeout: 120_000 }, async (t) => {
  const silent = net.createServer((socket) => socket.on('error', () => {}));
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  const asked = once(silent, 'connection');
  const frontend = spawn(process.execPath, [fileURLToPath(new URL('frontend.js', import.meta.url))], {
    env: { ...process.env, ADDRESS: '127.0.0.1', PORT: '0', REDIS: `redis://127.0.0.1:${silent.address().port}` },
    stdio: 'ignore',
  });
  const ended = once(frontend, 'exit');
  t.after(() => {
    frontend.kill('SIGKILL');
    silent.close();
  });
  await asked; // by then it handles signals
  frontend.kill('SIGTERM');
  assert.deepEqual(await ended, [0, null]);
});
