// A client that uses only the openai library, no code of Keygate. It asks for a completion at a base URL with a key, and
// prints what a program sees: the completion, or the error, as a line of JSON.
const OpenAI = require("openai");

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
client.chat.completions.create({ model: "m", messages: [{ role: "user", content: "hello" }] }).then(
  (completion) => console.log(JSON.stringify({ content: completion.choices[0].message.content })),
  (error) => {
    const { status, type, code, param, message } = error;
    console.log(JSON.stringify({ class: error.constructor.name, status, type, code, param, message, wait: error.headers?.get("retry-after") }));
  },
);
