// The server under test: messages arrive by POST and go to MongoDB, in one of four ways.
//   node server.js PORT MONGODB-URL POOL        (HOST=… to listen on more than loopback)
import express from "express";
import { connect, storeInGroups } from "./messages.js";

const [port, url, pool] = [Number(process.argv[2]), process.argv[3], Number(process.argv[4])];
/** If no message arrives for this long, no more are expected, and the groups are stored. */
const QUIET_MS = 100;
/** The most messages that may be accepted but not yet stored, in the bounded case. */
const MOST_WAITING = 2000;

const { client, messages } = await connect(url, pool);
const app = express();
app.disable("x-powered-by");
app.set("etag", false);
app.use(express.json());

let ending = false;

/** Whether a request is a message that can be accepted; if not, answers the request. */
function isMessage(request, response) {
  if (ending) {
    response.set("Connection", "close").sendStatus(503);
    return false;
  }
  const body = request.body;
  if (typeof body === "object" && body !== null && !Array.isArray(body)) return true;
  response.sendStatus(400);
  return false;
}

// The cost of any answer, and of reading a message on top of that.
app.get("/empty", (request, response) => response.sendStatus(200));
app.post("/empty", (request, response) => response.sendStatus(200));

/** Inserts in flight, of any kind. */
const underWay = new Set();
function insert(message) {
  const inserted = messages.insertOne(message).finally(() => underWay.delete(inserted));
  underWay.add(inserted);
  return inserted;
}

// Stored, then answered.
app.post("/sync", async (request, response) => {
  if (!isMessage(request, response)) return;
  await insert(request.body);
  response.sendStatus(201);
});

// Answered, then stored: inserts that wait for a connection of the pool wait in memory.
app.post("/async", (request, response) => {
  if (!isMessage(request, response)) return;
  insert(request.body).catch(lost);
  response.sendStatus(202);
});

// As `/async`, with back-pressure: if too many messages wait to be stored, a new one is answered once there is room.
const forRoom = [];
let waiting = 0;
app.post("/bounded", (request, response) => {
  if (!isMessage(request, response)) return;
  if (waiting < MOST_WAITING) accept(request, response);
  else forRoom.push([request, response]);
});

function accept(request, response) {
  waiting += 1;
  insert(request.body).catch(lost).finally(() => {
    waiting -= 1;
    const next = forRoom.shift();
    if (next && isMessage(...next)) accept(...next);
  });
  response.sendStatus(202);
}

// Answered and kept; stored in groups once no more messages come.
let kept = [];
let storing = Promise.resolve();
const quiet = setTimeout(() => (storing = storing.then(store)), QUIET_MS);
app.post("/group", (request, response) => {
  if (!isMessage(request, response)) return;
  kept.push(request.body);
  quiet.refresh();
  response.sendStatus(202);
});

async function store() {
  const [group, from] = [kept, { at: 0 }];
  kept = [];
  await storeInGroups(messages, pool, (n) => group.slice(from.at, (from.at += n)));
}

function lost(error) {
  console.error("accepted and not stored:", error.message);
}

const server = app.listen(port, process.env.HOST ?? "127.0.0.1", (error) => {
  if (error) throw error;
  console.log(`listening on ${port}`);
});

// What was accepted is stored before the process exits; nothing more is accepted.
process.once("SIGTERM", async () => {
  ending = true;
  server.close();
  server.closeIdleConnections();
  clearTimeout(quiet);
  for (const next of forRoom.splice(0)) isMessage(...next);
  await Promise.allSettled([...underWay, storing.then(store)]);
  await client.close();
  process.exit(0);
});
