// A service with a planted hot function. Three quarters of its work are in one function, the rest in another.
'use strict';

const http = require('node:http');

let sink = 0;

function plantedHot() {
  let x = 1;
  for (let i = 0; i < 1500000; i++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
  }
  sink = x;
}

function plantedWarm() {
  let x = 3;
  for (let i = 0; i < 500000; i++) {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
  }
  sink = x;
}

// Called from one place with many different functions, so none is inlined into its caller.
const parts = [() => 1, () => 2, () => 3, () => 4, () => 5, plantedWarm, plantedHot];

http
  .createServer((request, response) => {
    for (const part of parts) part();
    response.end('ok\n');
  })
  .listen(Number(process.argv[2]), '127.0.0.1');
