import { request } from "../api/client";
import type { PromptSuggestions, ServerPrompt, ServerPrompts } from "../api/types.generated";

/** A prompt of an MCP server, as a person filled it in. With the same key it is the same prompt. */
export interface FilledPrompt {
  server: string;
  name: string;
  arguments: Record<string, string>;
  key: string;
}

const SEND_MS = 45_000; // a server may have to be started for it

export const serverPrompts = {
  all: async (): Promise<ServerPrompt[]> =>
    ((await (await request("GET", "/api/mcp/prompts")).json()) as ServerPrompts).prompts,

  /** Values that the server suggests for `argument`, of which there is `value`; none if it cannot be asked. */
  suggestions: async (
    prompt: ServerPrompt,
    argument: string,
    values: Record<string, string>,
    signal: AbortSignal,
  ): Promise<string[]> => {
    const { [argument]: value = "", ...others } = values;
    const body = { server: prompt.server, name: prompt.name, argument, value, arguments: others };
    try {
      const answer = await request("POST", "/api/mcp/prompts/suggest", body, signal);
      return ((await answer.json()) as PromptSuggestions).values;
    } catch {
      return [];
    }
  },

  send: async (session: string, filled: FilledPrompt): Promise<void> => {
    const path = `/api/sessions/${encodeURIComponent(session)}/server-prompt`;
    await request("POST", path, filled, AbortSignal.timeout(SEND_MS));
  },
};
