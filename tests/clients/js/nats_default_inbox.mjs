// nats.js as it is, with its default inbox: prompts under a key, final answers, and the agent protocol.
//   node nats_default_inbox.mjs URL SEED_FILE USER TEXT_OF_MAIL TEXT_OF_AGENT
import { readFileSync } from "node:fs";
import { connect, headers, nkeyAuthenticator } from "@nats-io/transport-node";

const [url, seedFile, user, mailText, agentText] = process.argv.slice(2);
const seed = new TextEncoder().encode(readFileSync(seedFile, "utf8").trim());
const nc = await connect({ servers: url, authenticator: nkeyAuthenticator(seed) });
const problems = [];
(async () => {
  for await (const status of nc.status()) if (status.type === "error") problems.push(String(status.error));
})();

// A prompt under a key, sent twice: stored and answered twice, run once.
const replyTo = `_INBOX.${user}.final`;
const finals = nc.subscribe(replyTo, { max: 2, timeout: 60_000 });
const said = headers();
said.set("Fairlead-Reply-To", replyTo);
const acks = [];
for (let n = 0; n < 2; n++) {
  const ack = await nc.request("fairlead.session.main.in.prompt.js-1", mailText, { headers: said, timeout: 30_000 });
  acks.push(ack.json());
}
const answers = [];
for await (const message of finals) answers.push(message.json());

// Mail that cannot be read is answered, too.
const dropped = nc.subscribe(`_INBOX.${user}.bad`, { max: 1, timeout: 60_000 });
const bad = headers();
bad.set("Fairlead-Reply-To", `_INBOX.${user}.bad`);
await nc.request("fairlead.prompt.main", '{"text": 5}', { headers: bad, timeout: 30_000 });
const refused = [];
for await (const message of dropped) refused.push(message.json());

// The agent protocol: found by $SRV.INFO, prompted twice with the same key.
const infos = [];
for await (const info of await nc.requestMany("$SRV.INFO.agents", "", { strategy: "stall", maxWait: 5_000 })) {
  infos.push(info.json());
}
const prompt = infos
  .find((info) => info.metadata.session === "main")
  .endpoints.find((endpoint) => endpoint.name === "prompt");
const key = headers();
key.set("Nats-Msg-Id", "js-2");
const texts = [];
for (let n = 0; n < 2; n++) {
  let text = "";
  const options = { strategy: "sentinel", maxWait: 60_000, headers: key };
  for await (const message of await nc.requestMany(prompt.subject, agentText, options)) {
    if (message.data.length === 0) continue;
    const part = message.json();
    if (part.type === "response") text += part.data;
  }
  texts.push(text.trim());
}
await nc.close();
console.log(JSON.stringify({ acks, answers, refused, texts, queue: prompt.queue_group, problems }));
