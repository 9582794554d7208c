import { type SyntheticEvent, useEffect, useId, useState } from "react";
import { wordsOf } from "../api/pages";
import type { PromptArgument, ServerPrompt } from "../api/types.generated";
import { newKey } from "../session/outbox";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";
import { Escaped } from "../ui/Escaped";
import { type FilledPrompt, serverPrompts } from "./serverPrompts";
import styles from "./ServerPromptForm.module.css";

const SUGGEST_AFTER_MS = 200;

interface Props {
  prompt: ServerPrompt;
  onSend: (filled: FilledPrompt) => Promise<void>;
  onSent: () => void;
  onClose: () => void;
}

/** A prompt of an MCP server is filled in and sent. What the server or the gateway refuses is said here. */
export function ServerPromptForm({ prompt, onSend, onSent, onClose }: Props) {
  const [values, setValues] = useState<Record<string, string>>({});
  const [key, setKey] = useState(newKey);
  const [sending, setSending] = useState(false);
  const [refusal, setRefusal] = useState("");
  const send = (event: SyntheticEvent): void => {
    event.preventDefault();
    setSending(true);
    setRefusal("");
    const filled = Object.entries(values).filter(([, value]) => value !== "");
    onSend({ server: prompt.server, name: prompt.name, arguments: Object.fromEntries(filled), key }).then(
      onSent,
      (error: unknown) => {
        setSending(false);
        setRefusal(wordsOf(error));
      },
    );
  };
  return (
    <Dialog title={`/${prompt.server}:${prompt.name}`} onClose={onClose}>
      <form className={styles.form} onSubmit={send} autoComplete="off">
        {prompt.description && (
          <p>
            <Escaped text={prompt.description} />
          </p>
        )}
        {prompt.arguments.map((argument) => (
          <Argument
            key={argument.name}
            prompt={prompt}
            argument={argument}
            values={values}
            onChange={(value) => {
              setValues({ ...values, [argument.name]: value });
              setKey(newKey()); // it is another prompt
            }}
          />
        ))}
        <small>
          The MCP server <Escaped text={prompt.server} /> is given this. What it answers is sent as your prompt, and
          marked as its words.
        </small>
        {refusal && (
          <p className="bad-news" role="alert">
            <Escaped text={refusal} />
          </p>
        )}
        <div className={styles.buttons}>
          <Button type="submit" tone="primary" disabled={sending}>
            {sending ? "Sending…" : "Send"}
          </Button>
          <Button onClick={onClose}>Cancel</Button>
        </div>
      </form>
    </Dialog>
  );
}

interface ArgumentProps {
  prompt: ServerPrompt;
  argument: PromptArgument;
  values: Record<string, string>;
  onChange: (value: string) => void;
}

function Argument({ prompt, argument, values, onChange }: ArgumentProps) {
  const id = useId();
  const [focused, setFocused] = useState(false);
  const [suggestions, setSuggestions] = useState<readonly string[]>([]);
  useEffect(() => {
    if (!focused || !prompt.completes) return undefined;
    const asked = new AbortController();
    const timer = setTimeout(() => {
      const found = serverPrompts.suggestions(prompt, argument.name, values, asked.signal);
      void found.then((given) => asked.signal.aborted || setSuggestions(given));
    }, SUGGEST_AFTER_MS);
    return () => {
      clearTimeout(timer);
      asked.abort();
    };
  }, [focused, prompt, argument.name, values]);
  return (
    <div className={styles.field}>
      <label htmlFor={id}>
        <Escaped text={argument.name} />
        {argument.required ? " *" : ""}
      </label>
      <input
        id={id}
        list={`${id}-list`}
        value={values[argument.name] ?? ""}
        required={argument.required}
        maxLength={20_000}
        spellCheck={false}
        aria-describedby={argument.description ? `${id}-about` : undefined}
        onFocus={() => setFocused(true)}
        onBlur={() => setFocused(false)}
        onChange={(event) => onChange(event.target.value)}
      />
      <datalist id={`${id}-list`}>
        {suggestions.map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
      {argument.description && (
        <small id={`${id}-about`}>
          <Escaped text={argument.description} />
        </small>
      )}
    </div>
  );
}
