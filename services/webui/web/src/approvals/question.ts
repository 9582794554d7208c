import type { Json } from "../api/types";

/** One field of the form of a server, as the arguments of its question have it. */
export interface FormField {
  name: string;
  kind?: "text" | "number" | "integer" | "boolean" | "choice" | "choices";
  title?: string;
  description?: string;
  required?: boolean;
  choices?: readonly { value: string; title?: string }[];
  form?: string;
  default?: unknown;
}

export interface Question {
  question: string;
  options: readonly { label: string; description: string }[];
  multiple: boolean;
  /** The MCP server that asks in the middle of a call; empty: the agent asks. */
  server: string;
  fields: readonly FormField[];
  url: string;
}

export type FormValues = Readonly<Record<string, string | boolean | readonly string[]>>;

/** The question in the arguments of a request of kind `question`. */
export function questionIn(given: Json): Question {
  const options = Array.isArray(given["options"]) ? given["options"] : [];
  const fields = Array.isArray(given["fields"]) ? given["fields"] : [];
  return {
    question: textOf(given["question"]),
    multiple: given["multiple"] === true,
    server: textOf(given["server"]),
    url: addressOf(textOf(given["url"])),
    fields: fields.filter(isField),
    options: options.flatMap((one: unknown) => {
      if (typeof one !== "object" || one === null) return [];
      const { label, description } = one as Record<string, unknown>;
      return typeof label === "string" && label
        ? [{ label, description: typeof description === "string" ? description : "" }]
        : [];
    }),
  };
}

/** What a form holds before anyone wrote into it. */
export function valuesAtFirst(fields: readonly FormField[]): FormValues {
  return Object.fromEntries(
    fields.map((field): [string, FormValues[string]] => {
      const given = field.default;
      if (field.kind === "boolean") return [field.name, given === true];
      if (field.kind === "choices") return [field.name, Array.isArray(given) ? given.map(String) : []];
      return [field.name, typeof given === "string" ? given : typeof given === "number" ? given.toString() : ""];
    }),
  );
}

/** What is sent of a form: fields that were left empty are not, if they may be. */
export function valuesToSend(fields: readonly FormField[], values: FormValues): FormValues {
  const kept = fields.filter((field) => {
    const value = values[field.name];
    return field.required === true || !(value === "" || (Array.isArray(value) && value.length === 0));
  });
  return Object.fromEntries(kept.map((field) => [field.name, values[field.name] ?? ""]));
}

function isField(one: unknown): one is FormField {
  return typeof one === "object" && one !== null && typeof (one as { name?: unknown }).name === "string";
}

function textOf(given: unknown): string {
  return typeof given === "string" ? given : "";
}

/** Only what opens a page: nothing else becomes a link. */
function addressOf(given: string): string {
  return /^https?:\/\//.test(given) ? given : "";
}
