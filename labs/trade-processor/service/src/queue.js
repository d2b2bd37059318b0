// The queue between consumer and workers: a durable queue in RabbitMQ, and a connection to it that reconnects by
// itself. The user must repeat what was in flight when a connection ended: nothing is kept here.
import amqp from 'amqplib';

export const QUEUE = 'messages';

/** How long to wait before reconnecting after a connection ended or could not be made. */
const AGAIN_MS = 250;

/**
 * If RabbitMQ closes `channel` and not its connection, for example because a message was not acknowledged for too long,
 * the connection is closed as well, so that both are made anew.
 */
export function closeTogether(connection, channel) {
  channel.on('error', () => connection.close().catch(() => {}));
}

/** Has the queue's messages delivered over `channel`. If RabbitMQ cancels this, the connection is made anew. */
export async function takeFrom(connection, channel, onDelivery) {
  await channel.consume(QUEUE, (delivery) => {
    if (delivery === null) connection.close().catch(() => {});
    else onDelivery(delivery);
  });
}

/**
 * Keeps a connection to `url`. Calls `onUp(connection)` for each new connection, once the queue is declared, and
 * `onDown()` when it has ended. `onUp` may be asynchronous; if it throws, the connection is made anew.
 */
export function keepConnected(url, { onUp, onDown = () => {} }) {
  const again = () => setTimeout(connect, AGAIN_MS);

  async function connect() {
    let connection;
    try {
      connection = await amqp.connect(url, { timeout: 10_000, noDelay: true });
    } catch {
      again();
      return;
    }
    connection.on('error', () => {}); // `close` follows
    connection.once('close', () => {
      onDown();
      again();
    });
    try {
      const channel = await connection.createChannel();
      channel.on('error', () => {});
      await channel.assertQueue(QUEUE, { durable: true });
      await channel.close();
      await onUp(connection);
    } catch (error) {
      console.error(`the queue cannot be used: ${error.message}`);
      connection.close().catch(() => {});
    }
  }

  connect();
}
