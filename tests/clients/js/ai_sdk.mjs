// Vercel's AI SDK: a text with tools, an object, and a stream.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const fairlead = createOpenAICompatible({
  name: "fairlead",
  baseURL: process.env.OPENAI_BASE_URL,
  apiKey: process.env.OPENAI_API_KEY,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const model = fairlead("main");
const cities = [];
const tools = {
  weather: tool({
    description: "How warm it is.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => {
      cities.push(city);
      return "21 C";
    },
  }),
};
const call = 'steps=1 tool=weather args={"city":"Bonn"} answer="It is warm."';
const generated = await generateText({ model, tools, stopWhen: stepCountIs(3), prompt: `op=AITEXT ${call}` });
const { object } = await generateObject({
  model,
  schema: z.object({ name: z.string(), degrees: z.number() }),
  prompt: 'op=AIOBJECT answer={"name":"Bonn","degrees":21}',
});
const streamed = streamText({ model, tools, stopWhen: stepCountIs(3), prompt: `op=AISTREAM ${call}` });
let stream = "";
for await (const piece of streamed.textStream) stream += piece;
console.log(
  JSON.stringify({
    text: generated.text.trim(),
    steps: generated.steps.length,
    object,
    stream: stream.trim(),
    cities,
    tokens: (await streamed.totalUsage).inputTokens,
  }),
);
