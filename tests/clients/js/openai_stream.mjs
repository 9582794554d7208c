// One streamed answer by OpenAI's SDK.
import OpenAI from "openai";

const client = new OpenAI();
const stream = await client.chat.completions.create({
  model: "main",
  messages: [{ role: "user", content: process.argv[2] }],
  stream: true,
});
let text = "";
let finish_reason = null;
for await (const chunk of stream) {
  const [choice] = chunk.choices;
  if (!choice) continue;
  text += choice.delta.content ?? "";
  finish_reason = choice.finish_reason ?? finish_reason;
}
console.log(JSON.stringify({ text, finish_reason }));
