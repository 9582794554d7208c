// Vercel's AI SDK with retries of its own, which do not say that they are any: several texts at once.
// Arguments: prompts, each as `chat=<prompt>` or `responses=<prompt>`.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText } from "ai";

const options = { baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY };
const models = {
  chat: createOpenAICompatible({ name: "fairlead", ...options })("main"),
  responses: createOpenAI(options)("main"),
};
const texts = await Promise.all(
  process.argv.slice(2).map(async (argument) => {
    const [, kind, prompt] = /^(\w+)=(.*)$/s.exec(argument);
    return (await generateText({ model: models[kind], prompt, maxRetries: 8 })).text.trim();
  }),
);
console.log(JSON.stringify(texts));
