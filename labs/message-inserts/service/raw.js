// Inserts without a server in front: the program that makes the load of the plan's raw cases.
//   node raw.js HOW MONGODB-URL POOL REQUESTS
// HOW: `single` stores messages one by one, with one insert in flight per connection; `group` stores them in groups.
// It ends with an error if a message could not be stored.
import { connect, storeAllInGroups } from "./messages.js";

const [how, url, pool, requests] = [process.argv[2], process.argv[3], Number(process.argv[4]), Number(process.argv[5])];
const { client, messages } = await connect(url, pool);
const message = (id) => ({ id, user: id % 100, text: "What is the price of grouping?" });

let sent = 0;
console.log("connected"); // the load begins here
if (how === "single") {
  const worker = async () => {
    while (sent < requests) await messages.insertOne(message(sent++));
  };
  await Promise.all(Array.from({ length: pool }, worker));
} else {
  await storeAllInGroups(messages, pool, (n) => {
    const group = Array.from({ length: Math.min(n, requests - sent) }, (_, i) => message(sent + i));
    sent += group.length;
    return group;
  });
}
await client.close();
