// Clients with retries of their own: several texts at once. Those of Vercel's AI SDK do not say that they are any.
// Arguments: prompts, as `openai=<prompt>`, `vercel=<prompt>` (chat completions) or `vercelresponses=<prompt>`.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText } from "ai";
import OpenAI from "openai";

const options = { baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY };
const vercel = {
  vercel: createOpenAICompatible({ name: "fairlead", ...options })("main"),
  vercelresponses: createOpenAI(options)("main"),
};

async function answer(kind, prompt) {
  if (kind in vercel) return (await generateText({ model: vercel[kind], prompt, maxRetries: 8 })).text;
  const client = new OpenAI({ ...options, maxRetries: 12 });
  const messages = [{ role: "user", content: prompt }];
  return (await client.chat.completions.create({ model: "main", messages })).choices[0].message.content;
}

const texts = await Promise.all(
  process.argv.slice(2).map(async (argument) => {
    const [, kind, prompt] = /^(\w+)=(.*)$/s.exec(argument);
    return (await answer(kind, prompt)).trim();
  }),
);
console.log(JSON.stringify(texts));
