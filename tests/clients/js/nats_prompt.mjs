// nats.js as it is: one prompt by the agent protocol, and its answer.
//   node nats_prompt.mjs URL SEED_FILE TEXT
import { readFileSync } from "node:fs";
import { connect, nkeyAuthenticator } from "@nats-io/transport-node";

const [url, seedFile, prompt] = process.argv.slice(2);
const seed = new TextEncoder().encode(readFileSync(seedFile, "utf8").trim());
const nc = await connect({ servers: url, authenticator: nkeyAuthenticator(seed) });
const answer = await nc.requestMany("agents.prompt.fairlead.fairlead.main", prompt, {
  strategy: "sentinel",
  maxWait: 80_000,
});
let text = "";
for await (const message of answer) {
  if (message.data.length === 0) continue;
  const part = message.json();
  if (part.type === "response") text += part.data;
}
await nc.close();
console.log(JSON.stringify(text.trim()));
