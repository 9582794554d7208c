// A program on types that `openapi-typescript` made (`api.d.ts`, beside this file where the test puts both).
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { env: Record<string, string> }; // types of Node are not needed

type Schemas = components["schemas"];

const PATIENCE_MS = 30_000;
const client = createClient<paths>({
  baseUrl: process.env.FAIRLEAD_URL,
  headers: { Authorization: `Bearer ${process.env.FAIRLEAD_TOKEN}` },
});

async function until<T>(what: string, look: () => Promise<T | undefined>): Promise<T> {
  const deadline = Date.now() + PATIENCE_MS;
  while (Date.now() < deadline) {
    const found = await look();
    if (found !== undefined) return found;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`${what}: not within ${PATIENCE_MS} ms`);
}

function told(entry: Schemas["StoredEntry"]): string[] {
  switch (entry.type) {
    case "message":
      switch (entry.message.role) {
        case "tool_result":
          return [`result ${entry.message.outcome.status}`];
        default:
          return [entry.message.role];
      }
    case "run_end":
      return [`end ${entry.outcome}`];
    default:
      return [];
  }
}

async function events(session: string): Promise<string[]> {
  const { response } = await client.GET("/api/sessions/{session}/events", {
    params: { path: { session } },
    parseAs: "stream",
  });
  const found: string[] = [];
  let text = "";
  for await (const piece of response.body!.pipeThrough(new TextDecoderStream())) {
    text += piece;
    const lines = text.split("\n");
    text = lines.pop()!;
    for (const line of lines.filter((each) => each.startsWith("data: "))) {
      const event = JSON.parse(line.slice(6)) as Schemas["SessionEvent"];
      if (event.type === "entry") found.push(`entry ${event.entry.type}`);
      else if (event.type === "agent_end") found.push(`agent_end ${event.outcome}`);
      else if (event.type === "caught_up") return found;
    }
  }
  return found;
}

const { data: made } = await client.POST("/api/sessions", { body: { agent: "careful" } });
const session = made!.id;
const prompt = () =>
  client.POST("/api/sessions/{session}/prompt", {
    params: { path: { session } },
    body: { text: 'op=GENTS steps=1 run="echo typed" answer="all done"', key: "typed-1" },
  });
const [first, again] = [await prompt(), await prompt()];

const tool = await until("an approval", async () => {
  const { data } = await client.GET("/api/approvals", { params: { query: { session } } });
  const approval = data?.approvals[0];
  if (approval === undefined) return undefined;
  await client.POST("/api/approvals/{approval}", {
    params: { path: { approval: approval.id } },
    body: { decision: "once", shown_hash: approval.shown_hash },
  });
  return approval.tool;
});
await until("the end of the run", async () => {
  const { data } = await client.GET("/api/sessions/{session}", { params: { path: { session } } });
  return data?.status === "idle" ? true : undefined;
});
const { data: page } = await client.GET("/api/sessions/{session}/entries", { params: { path: { session } } });
const missing = await client.GET("/api/sessions/{session}", { params: { path: { session: "nonesuch" } } });
const wrong = await client.POST("/api/sessions", { body: { title: "x".repeat(501) } });

console.log(
  JSON.stringify({
    same: first.data!.seq === again.data!.seq,
    tool,
    entries: page!.entries.flatMap(told),
    events: await events(session),
    refused: [missing, wrong].map(({ error, response }) => [response.status, error!.error.code, error!.error.field]),
  }),
);
