import { useId, useState } from "react";
import { Button } from "../ui/Button";
import { Escaped } from "../ui/Escaped";
import { type FormField, type FormValues, valuesAtFirst, valuesToSend } from "./question";
import styles from "./QuestionCard.module.css";

interface Props {
  fields: readonly FormField[];
  off: boolean;
  onSend: (values: FormValues) => void;
}

/** The form that a server wants to have filled in. The gateway checks it, and says what does not fit. */
export function QuestionForm({ fields, off, onSend }: Props) {
  const [values, setValues] = useState(() => valuesAtFirst(fields));
  return (
    <form
      className={styles.form}
      onSubmit={(event) => {
        event.preventDefault();
        onSend(valuesToSend(fields, values));
      }}
    >
      {fields.map((field) => (
        <Row
          key={field.name}
          field={field}
          off={off}
          value={values[field.name]}
          onChange={(value) => setValues({ ...values, [field.name]: value })}
        />
      ))}
      <Button type="submit" tone="primary" disabled={off} title="The server gets these values, and the call continues">
        Send
      </Button>
    </form>
  );
}

interface RowProps {
  field: FormField;
  off: boolean;
  value: FormValues[string] | undefined;
  onChange: (value: FormValues[string]) => void;
}

function Row({ field, off, value, onChange }: RowProps) {
  const id = useId();
  const about = useId();
  const common = { id, disabled: off, "aria-describedby": field.description ? about : undefined };
  const choices = field.choices ?? [];
  let input;
  if (field.kind === "boolean")
    input = (
      <input
        {...common}
        type="checkbox"
        checked={value === true}
        onChange={(event) => onChange(event.target.checked)}
      />
    );
  else if (field.kind === "choice" || field.kind === "choices") {
    const many = field.kind === "choices";
    const taken = Array.isArray(value) ? value.map(String) : typeof value === "string" ? value : "";
    input = (
      <select
        {...common}
        multiple={many}
        required={field.required}
        value={taken}
        onChange={(event) =>
          onChange(many ? [...event.target.selectedOptions].map((one) => one.value) : event.target.value)
        }
      >
        {!many && <option value="">Choose …</option>}
        {choices.map((one) => (
          <option key={one.value} value={one.value}>
            {one.title || one.value}
          </option>
        ))}
      </select>
    );
  } else
    input = (
      <input
        {...common}
        type={TYPES[field.form ?? ""] ?? "text"}
        inputMode={field.kind === "text" || field.kind === undefined ? undefined : "decimal"}
        required={field.required}
        maxLength={4000}
        value={typeof value === "string" ? value : ""}
        onChange={(event) => onChange(event.target.value)}
      />
    );
  return (
    <div className={styles.field}>
      <label htmlFor={id}>
        <Escaped text={field.title || field.name} />
        {field.required ? " *" : ""}
      </label>
      {input}
      {field.description && (
        <span id={about}>
          <Escaped text={field.description} />
        </span>
      )}
    </div>
  );
}

const TYPES: Readonly<Record<string, string>> = { email: "email", uri: "url", date: "date" };
