// Reads streams of requests with Node's HTTP parser. Standard input and output
// hold one case a line: the bytes in base 64; the reading as JSON.
'use strict';
const http = require('node:http');
const net = require('node:net');
const readline = require('node:readline');

let reading;
const server = http.createServer({ keepAliveTimeout: 0, requestTimeout: 0, headersTimeout: 0 }, (req, res) => {
  const message = { method: req.method, target: req.url, head: req.rawHeaders, body: '', trailers: [] };
  const parts = [];
  req.on('data', (part) => parts.push(part));
  req.on('error', () => {});
  req.on('end', () => {
    message.body = Buffer.concat(parts).toString('base64');
    message.trailers = req.rawTrailers;
    reading.messages.push(message);
    res.end();
  });
});
const whole = (req, socket) => {
  reading.messages.push({ method: req.method, target: req.url, head: req.rawHeaders, body: '', trailers: [] });
  socket.end();
};
server.on('connect', whole);
server.on('checkContinue', (req, res) => server.emit('request', req, res));
server.on('checkExpectation', (req, res) => server.emit('request', req, res));
server.on('clientError', (err, socket) => {
  reading.error = err.code || String(err);
  socket.destroy();
});

server.listen(0, '127.0.0.1', async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    reading = { messages: [], error: '' };
    await new Promise((done) => {
      const c = net.connect(server.address().port, '127.0.0.1', () => c.end(Buffer.from(line, 'base64')));
      c.on('error', () => {});
      c.on('close', done);
      c.resume();
    });
    process.stdout.write(JSON.stringify(reading) + '\n');
  }
  process.exit(0);
});
