// The server under test: messages come in by POST and go to MongoDB, in one of three ways.
//   node server.js PORT MONGODB-URL POOL        (HOST=… where it is not to listen on loopback only)
import express from "express";
import { connect, storeInGroups } from "./messages.js";

const [port, url, pool] = [Number(process.argv[2]), process.argv[3], Number(process.argv[4])];
/** So long after the last message nothing more is expected, and the groups are stored. */
const QUIET_MS = 100;

const { client, messages } = await connect(url, pool);
const app = express();
app.disable("x-powered-by");
app.set("etag", false);
app.use(express.json());

// What any answer costs, and what reading a message costs on top of that.
app.get("/empty", (request, response) => response.sendStatus(200));
app.post("/empty", (request, response) => response.sendStatus(200));

// Stored, then answered.
app.post("/sync", async (request, response) => {
  await messages.insertOne(request.body);
  response.sendStatus(201);
});

// Answered, then stored: whoever waits for a connection of the pool waits in memory.
const underWay = new Set();
app.post("/async", (request, response) => {
  const insert = messages.insertOne(request.body).catch(lost).finally(() => underWay.delete(insert));
  underWay.add(insert);
  response.sendStatus(202);
});

// Answered and kept; stored in groups when no more messages come.
let kept = [];
let storing = Promise.resolve();
const quiet = setTimeout(() => (storing = storing.then(store)), QUIET_MS);
app.post("/group", (request, response) => {
  kept.push(request.body);
  quiet.refresh();
  response.sendStatus(202);
});

async function store() {
  const [group, from] = [kept, { at: 0 }];
  kept = [];
  await storeInGroups(messages, pool, (n) => group.slice(from.at, (from.at += n))).catch(lost);
}

function lost(error) {
  console.error("accepted and not stored:", error.message);
}

const server = app.listen(port, process.env.HOST ?? "127.0.0.1", (error) => {
  if (error) throw error;
  console.log(`listening on ${port}`);
});

// What was accepted is stored before it ends.
process.once("SIGTERM", async () => {
  server.close();
  server.closeIdleConnections();
  clearTimeout(quiet);
  await Promise.all([...underWay, storing.then(store)]);
  await client.close();
  process.exit(0);
});
