// Tools that the SDK runs by itself, and an answer that it parses.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI();
const calls = [];
const runner = client.chat.completions.runTools({
  model: "main",
  messages: [
    { role: "user", content: 'op=JSTOOL steps=1 tool=weather args={"city":"Bonn"} answer="It is warm."' },
  ],
  tools: [
    {
      type: "function",
      function: {
        name: "weather",
        description: "How warm it is.",
        parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
        parse: JSON.parse,
        function: ({ city }) => {
          calls.push(city);
          return "21 C";
        },
      },
    },
  ],
});
const text = (await runner.finalContent()).trim();
const City = z.object({ name: z.string(), degrees: z.number() });
const parsed = await client.chat.completions.parse({
  model: "main",
  messages: [{ role: "user", content: 'op=JSPARSE answer={"name":"Bonn","degrees":21}' }],
  response_format: zodResponseFormat(City, "city"),
});
console.log(JSON.stringify({ tools: { text, calls }, parsed: parsed.choices[0].message.parsed }));
