// A client that uses only the openai library, no code of Keygate. It asks for a completion at a base URL with a key, and
// prints what a program sees: the completion, or the error, as a line of JSON. It reads the completion as a whole, or as a
// "stream" that has usage, or hangs up ("hangup") after the first piece of one.
const OpenAI = require("openai");

const [baseURL, apiKey, way] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const question = { model: "m", messages: [{ role: "user", content: "hello" }] };

async function ask() {
  if (!way) {
    const completion = await client.chat.completions.create(question);
    return { content: completion.choices[0].message.content, tokens: completion.usage?.total_tokens };
  }
  const stream = await client.chat.completions.create({ ...question, stream: true, stream_options: { include_usage: true } });
  const seen = { content: "" };
  for await (const chunk of stream) {
    seen.content += chunk.choices[0]?.delta?.content ?? "";
    seen.tokens = chunk.usage?.total_tokens;
    if (way === "hangup") break;
  }
  return seen;
}

ask().then(
  (seen) => console.log(JSON.stringify(seen)),
  (error) => {
    const { status, type, code, param, message } = error;
    console.log(JSON.stringify({ class: error.constructor.name, status, type, code, param, message, wait: error.headers?.get("retry-after") }));
  },
);
