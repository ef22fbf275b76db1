// What Node's gRPC client sees of the door, as one JSON document. Driven by tests/end_to_end/test_grpc_js.py.
'use strict';
const fs = require('fs');
const grpc = require('@grpc/grpc-js');

const [address, authority] = process.argv.slice(2);
const credentials = authority ? grpc.credentials.createSsl(fs.readFileSync(authority)) : grpc.credentials.createInsecure();
const client = new grpc.Client(address, credentials);
const asIs = (bytes) => bytes;

const say = (method, body, options = {}, metadata = new grpc.Metadata()) =>
  new Promise((resolve) => {
    client.makeUnaryRequest(`/test.Echo/${method}`, asIs, asIs, body, metadata, options, (error, answer) =>
      resolve(error ? { code: error.code, details: error.details } : { length: answer.length, text: answer.toString('latin1').slice(0, 300) }));
  });

const count = (text) =>
  new Promise((resolve, reject) => {
    const numbers = [];
    const stream = client.makeServerStreamRequest('/test.Echo/Count', asIs, asIs, Buffer.from(text));
    stream.on('data', (body) => numbers.push(parseInt(body.toString('latin1'), 10)));
    stream.on('error', reject);
    stream.on('end', () => resolve(numbers));
  });

const chat = (bodies) =>
  new Promise((resolve, reject) => {
    const back = [];
    const stream = client.makeBidiStreamRequest('/test.Echo/Chat', asIs, asIs);
    stream.on('data', (body) => back.push(body.toString('latin1')));
    stream.on('error', reject);
    stream.on('end', () => resolve(back));
    bodies.forEach((body) => stream.write(Buffer.from(body)));
    stream.end();
  });

const leave = () =>
  new Promise((resolve) => {
    const stream = client.makeServerStreamRequest('/test.Echo/Tick', asIs, asIs, Buffer.alloc(0));
    stream.on('data', () => stream.cancel());
    stream.on('error', (error) => resolve(error.code));
  });

async function main() {
  const seen = {};
  seen.sizes = [];
  for (const size of [0, 10, 70000, 3000000]) seen.sizes.push((await say('Say', Buffer.alloc(size, 'x'))).length);
  seen.many = (await Promise.all([...Array(1000).keys()].map((n) => say('Say', Buffer.from(`call ${n}`))))).map((answer) => answer.text);
  seen.fail = await say('Fail', Buffer.from('7 50 % grün'));
  seen.unknown = await say('Nothing', Buffer.alloc(0));
  seen.large = await say('Say', Buffer.alloc(5000000));
  seen.deadline = await say('Never', Buffer.alloc(0), { deadline: Date.now() + 300 });
  const metadata = new grpc.Metadata();
  metadata.set('x-name', 'value');
  metadata.set('trace-bin', Buffer.from([1, 2, 255]));
  seen.metadata = JSON.parse((await say('Metadata', Buffer.alloc(0), {}, metadata)).text);
  seen.count = await count('5000 300');
  seen.wide = (await count('4 2000000')).length;
  seen.chat = await chat(['one', '', 'three']);
  seen.cancelled = await leave();
  client.close();
  process.stdout.write(JSON.stringify(seen));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
