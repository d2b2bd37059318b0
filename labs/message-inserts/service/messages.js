// The collection that everything here is about, and how many messages are stored at once.
import { MongoClient } from "mongodb";

const GROUP = 1000;

/** Connects with as many connections as `pool` says. */
export async function connect(url, pool) {
  const client = new MongoClient(url, { maxPoolSize: pool, minPoolSize: pool });
  await client.connect();
  return { client, messages: client.db("lab").collection("messages") };
}

/** Stores messages in groups, `pool` groups at a time. `next` gives the next group, an empty one at the end. */
export async function storeInGroups(messages, pool, next) {
  const worker = async () => {
    for (let group = next(GROUP); group.length > 0; group = next(GROUP)) {
      await messages.insertMany(group, { ordered: false });
    }
  };
  await Promise.all(Array.from({ length: pool }, worker));
}
