// Groups of messages on a failing database: what is retried, and what counts as lost.
//   node --test labs/message-inserts/service/messages.test.js
import assert from "node:assert/strict";
import test from "node:test";
import { storeAllInGroups, storeGroup, storeInGroups } from "./messages.js";

/** A collection that stores what it is given, unless `fails(docs, call)` returns an error. */
function collection(fails = () => null) {
  const stored = new Set();
  let calls = 0;
  return {
    stored,
    calls: () => calls,
    async insertMany(docs) {
      const failure = fails(docs, (calls += 1), stored);
      if (failure) throw failure;
      for (const doc of docs) stored.add(doc.id);
    },
  };
}

const messages = (n) => Array.from({ length: n }, (_, id) => ({ id }));
const taker = (all) => (n) => all.splice(0, n);

test("everything is stored, in groups of a thousand", async () => {
  const into = collection();
  assert.equal(await storeInGroups(into, 3, taker(messages(2500))), 0);
  assert.equal(into.stored.size, 2500);
  assert.equal(into.calls(), 3);
});

test("a program that has to store everything fails if a message is not stored", async () => {
  await storeAllInGroups(collection(), 2, taker(messages(1500)));
  const refused = { writeErrors: { code: 11000, index: 0 } };
  const into = collection((docs) => (docs[0].id === 0 ? Object.assign(new Error("duplicate"), refused) : null));
  await assert.rejects(storeAllInGroups(into, 2, taker(messages(1500))), /^Error: 1 messages are not stored$/);
});

test("a group that failed is tried again", async () => {
  const into = collection((_, call) => (call < 3 ? new Error("not reachable") : null));
  assert.equal(await storeGroup(into, messages(10), 1), 0);
  assert.equal(into.stored.size, 10);
});

const duplicates = Object.assign(new Error("duplicate"), {
  writeErrors: [{ code: 11000, index: 0 }, { code: 11000, index: 1 }],
});

test("what an earlier try stored is stored", async () => {
  const into = collection((docs, call, stored) => {
    if (call === 1) return new Error("the connection ended");
    stored.add(0).add(1).add(2);
    return duplicates;
  });
  assert.equal(await storeGroup(into, messages(3), 1), 0);
  assert.equal(into.calls(), 2);
});

test("messages with an _id that another has are lost", async () => {
  const into = collection((docs, call, stored) => {
    stored.add(2);
    return duplicates;
  });
  assert.equal(await storeGroup(into, messages(3), 1), 2);
  assert.equal(into.calls(), 1);
});

test("only messages that the database refused are lost, and the other groups are stored", async () => {
  const into = collection((docs, _, stored) => {
    const bad = docs.findIndex((doc) => doc.id === 7);
    if (bad < 0) return null;
    for (const doc of docs) if (doc.id !== 7) stored.add(doc.id);
    return Object.assign(new Error("refused"), { writeErrors: { code: 121, index: bad } });
  });
  assert.equal(await storeInGroups(into, 2, taker(messages(2000))), 1);
  assert.equal(into.stored.size, 1999);
});
