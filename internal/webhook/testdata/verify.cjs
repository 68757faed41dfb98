// Verifies a list of {secret, payload, headers} from standard input with the Standard
// Webhooks library, as a receiver would. It prints a list with "ok" or the library's error
// for each.
const { Webhook } = require("standardwebhooks");

let input = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (part) => (input += part));
process.stdin.on("end", () => {
  const results = JSON.parse(input).map(({ secret, payload, headers }) => {
    try {
      new Webhook(secret).verify(payload, headers);
      return "ok";
    } catch (e) {
      return e.message;
    }
  });
  process.stdout.write(JSON.stringify(results));
});
