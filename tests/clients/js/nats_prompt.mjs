// nats.js as it is: one prompt by the agent protocol, to the agent that it finds, and the answer.
//   node nats_prompt.mjs URL SEED_FILE TEXT
import { readFileSync } from "node:fs";
import { connect, nkeyAuthenticator } from "@nats-io/transport-node";

const [url, seedFile, prompt] = process.argv.slice(2);
const seed = new TextEncoder().encode(readFileSync(seedFile, "utf8").trim());
const nc = await connect({ servers: url, authenticator: nkeyAuthenticator(seed) });

// A user that was added a moment ago may not reach the agents yet.
const subjects = [];
for (let tries = 0; tries < 30 && !subjects.length; tries++) {
  for await (const message of await nc.requestMany("$SRV.INFO.agents", "", { strategy: "stall", maxWait: 2_000 })) {
    if (!message.data.length) continue; // nobody listens
    const info = message.json();
    if (info.metadata.session === "main") subjects.push(info.endpoints.find((each) => each.name === "prompt").subject);
  }
}
const answer = await nc.requestMany(subjects[0], prompt, {
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
