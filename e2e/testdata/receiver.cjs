// A webhook receiver that uses only node:http and the standardwebhooks library, no
// code of Keygate. It prints its address, then one line for each delivery.
const http = require("node:http");
const { Webhook } = require("standardwebhooks");

const webhook = new Webhook(process.env.SIGNING_SECRET);
const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    try {
      const event = webhook.verify(Buffer.concat(parts).toString("utf8"), request.headers);
      console.log(`verified ${event.type} ${event.id} ${JSON.stringify(event.data)}`);
      response.writeHead(204).end();
    } catch (error) {
      console.log(`refused ${error.message}`);
      response.writeHead(400).end();
    }
  });
});
server.listen(0, "127.0.0.1", () => console.log(`listening http://127.0.0.1:${server.address().port}/`));
