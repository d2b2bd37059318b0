// The collection that everything here uses, and storing messages in groups.
import { MongoClient } from "mongodb";

const GROUP = 1000;
/** How often storing a group is tried, and how long after a failure it is retried. */
const TRIES = 5;
const AGAIN_MS = 200;
/**
 * Error code of a duplicate `_id`. The driver assigns the `_id` on the first try, so a duplicate on a later try was
 * stored by an earlier one. On the first try, it is an `_id` that the client gave.
 */
const DUPLICATE = 11000;

/** Connects with a pool of `pool` connections. */
export async function connect(url, pool) {
  const client = new MongoClient(url, { maxPoolSize: pool, minPoolSize: pool });
  await client.connect();
  return { client, messages: client.db("lab").collection("messages") };
}

/**
 * Stores messages in groups, `pool` groups at a time. `next` returns the next group, and an empty one at the end. A
 * group that cannot be stored does not stop the others. Returns how many messages are not stored after all tries.
 */
export async function storeInGroups(messages, pool, next) {
  let lost = 0;
  const worker = async () => {
    for (let group = next(GROUP); group.length > 0; group = next(GROUP)) {
      // In two steps: `lost += await …` would overwrite what other workers have added meanwhile.
      const missing = await storeGroup(messages, group);
      lost += missing;
    }
  };
  await Promise.all(Array.from({ length: pool }, worker));
  return lost;
}

/** As `storeInGroups`, but fails if any message is not stored: for a program that counts as done once it ends. */
export async function storeAllInGroups(messages, pool, next) {
  const lost = await storeInGroups(messages, pool, next);
  if (lost > 0) throw new Error(`${lost} messages are not stored`);
}

/** Stores a group, with retries. Returns how many of its messages are not stored. */
export async function storeGroup(messages, group, againMs = AGAIN_MS) {
  let [left, lost] = [group, 0];
  for (let tried = 1; ; tried += 1) {
    try {
      await messages.insertMany(left, { ordered: false });
      return lost;
    } catch (error) {
      const { failed, known } = notStored(left, error);
      left = failed;
      if (tried === 1 && known > 0) {
        console.error(`accepted and not stored: ${known} messages with an _id that another has`);
        lost += known;
      }
      if (left.length === 0) return lost;
      if (tried === TRIES) {
        console.error(`accepted and not stored: ${left.length} messages: ${error.message}`);
        return lost + left.length;
      }
    }
    await new Promise((done) => setTimeout(done, againMs));
  }
}

/**
 * The messages of a group that an error refers to, and how many others have an `_id` that exists already. All messages
 * are `failed`, unless the database reports which.
 */
function notStored(group, error) {
  const errors = error.writeErrors === undefined ? null : [error.writeErrors].flat();
  if (!errors?.length) return { failed: group, known: 0 };
  const failed = errors.filter((one) => one.code !== DUPLICATE);
  return { failed: failed.map((one) => group[one.index]), known: errors.length - failed.length };
}
