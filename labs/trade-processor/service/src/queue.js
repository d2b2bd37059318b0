// The queue between consumer and workers: a durable queue in RabbitMQ, and a connection to it that comes back by
// itself. What was under way when a connection ended is the user's to repeat: nothing is kept here.
import amqp from 'amqplib';

export const QUEUE = 'messages';

/** How long after a connection ended, or could not be made, the next one is tried. */
const AGAIN_MS = 250;

/**
 * Keeps a connection to `url` and calls `onUp(connection)` each time there is a new one with the queue declared,
 * `onDown()` when it has ended. `onUp` may be asynchronous; should it throw, the connection is made anew.
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
