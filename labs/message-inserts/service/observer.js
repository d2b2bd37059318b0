// Watches the collection from outside, whatever happens to the server.
//   node observer.js PORT MONGODB-URL           (HOST=… to listen on more than loopback)
// GET /stored: the number of messages; GET /ids: their ids; POST /empty: removes all of them.
import { createServer } from "node:http";
import { connect } from "./messages.js";

const { client, messages } = await connect(process.argv[3], 1);
const answers = {
  "GET /stored": async () => ({ stored: await messages.estimatedDocumentCount() }),
  "GET /ids": async () => {
    const all = await messages.find({}, { projection: { _id: 0, id: 1 } }).toArray();
    return { ids: all.map((message) => message.id) };
  },
  "POST /empty": async () => ({ emptied: await client.db("lab").dropDatabase() }),
};

createServer(async (request, response) => {
  try {
    const answer = answers[`${request.method} ${request.url}`];
    response.writeHead(answer ? 200 : 404, { "content-type": "application/json" });
    response.end(answer ? JSON.stringify(await answer()) : "{}");
  } catch (error) {
    response.destroy(error);
  }
}).listen(Number(process.argv[2]), process.env.HOST ?? "127.0.0.1");
