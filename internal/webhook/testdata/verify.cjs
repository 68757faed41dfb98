// Verifies what stands on standard input with the public Standard Webhooks
// library, as a receiver would: a list of {secret, payload, headers}. It prints
// for each "ok" or what the library says.
const { Webhook } = require("standardwebhooks");

let input = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (part) => (input += part));
process.stdin.on("end", () => {
  const said = JSON.parse(input).map(({ secret, payload, headers }) => {
    try {
      new Webhook(secret).verify(payload, headers);
      return "ok";
    } catch (e) {
      return e.message;
    }
  });
  process.stdout.write(JSON.stringify(said));
});
