// OpenAI's SDK and Vercel's ai with its default provider, both on the Responses API.
import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const MODEL = "main";
const Count = z.object({ n: z.number() });

async function ofOpenAI() {
  const client = new OpenAI();
  const ask = (input, more = {}) => client.responses.create({ model: MODEL, input, ...more });
  const first = await ask('op=RESPJS1 answer="one"');
  const second = await ask('op=RESPJS2 answer="two"', { previous_response_id: first.id });
  let streamed = "";
  const stream = client.responses.stream({ model: MODEL, input: "say 3 tokens id=RESPJS3" });
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") streamed += event.delta;
  }
  const final = await stream.finalResponse();
  let job = await ask('op=RESPJS4 answer="three"', { background: true });
  while (job.status === "queued" || job.status === "in_progress") {
    await new Promise((resolve) => setTimeout(resolve, 50));
    job = await client.responses.retrieve(job.id);
  }
  const parsed = await client.responses.parse({
    model: MODEL,
    input: 'op=RESPJS5 steps=1 run="echo hi" answer={"n":7}',
    text: { format: zodTextFormat(Count, "count") },
  });
  return {
    parsed: parsed.output_parsed,
    first: first.output_text.trim(),
    second: second.output_text.trim(),
    streamed: streamed.trim(),
    final: final.output_text.trim(),
    background: [job.status, job.output_text.trim()],
  };
}

async function ofVercel() {
  const sessions = new Set();
  const watched = async (url, options) => {
    const response = await fetch(url, options);
    sessions.add(response.headers.get("x-fairlead-session"));
    return response;
  };
  const fairlead = createOpenAI({
    baseURL: process.env.OPENAI_BASE_URL,
    apiKey: process.env.OPENAI_API_KEY,
    fetch: watched,
  });
  const model = fairlead(MODEL);
  const messages = [{ role: "user", content: 'op=RESPAI1 steps=1 run="echo hi" answer="four"' }];
  const answered = await generateText({ model, messages });
  messages.push(...answered.response.messages, { role: "user", content: "say 3 tokens id=RESPAI2" });
  let streamed = "";
  for await (const text of streamText({ model, messages }).textStream) streamed += text;
  const ofChat = sessions.size;
  const cities = [];
  const weather = tool({
    description: "how it is outside",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      cities.push(city);
      return "sunny";
    },
  });
  const own = await generateText({
    model,
    tools: { weather },
    stopWhen: stepCountIs(3),
    prompt: 'op=RESPAI3 steps=1 tool=weather args={"city":"Kiel"} answer="It is sunny."',
  });
  const { object } = await generateObject({ model, schema: Count, prompt: 'op=RESPAI4 answer={"n":6}' });
  return {
    own: { text: own.text.trim(), cities, steps: own.steps.length },
    object,
    text: answered.text.trim(),
    streamed: streamed.trim(),
    sessions: ofChat,
    tools: answered.content.filter((part) => part.type === "tool-call").map((part) => part.toolName),
  };
}

console.log(JSON.stringify({ openai: await ofOpenAI(), ai: await ofVercel() }));
