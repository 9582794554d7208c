import { useState } from "react";
import { Button } from "../ui/Button";
import { Dialog } from "../ui/Dialog";

/** Asks for a model that no agent has yet. */
export function NameModel({
  model,
  action = "Use it",
  known = [],
  onName,
  onClose,
}: {
  model: string;
  action?: string;
  /** Names to choose from while one types. */
  known?: readonly string[];
  onName: (model: string) => void;
  onClose: () => void;
}) {
  const [name, setName] = useState(model);
  const named = name.trim();
  return (
    <Dialog title="Another model" onClose={onClose}>
      <p>Format: provider, slash, model name. Takes effect with the next turn.</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          onName(named);
          onClose();
        }}
      >
        <input
          aria-label="Model"
          list="known-models"
          autoFocus
          value={name}
          onFocus={(event) => event.target.select()}
          onChange={(event) => setName(event.target.value)}
        />
        <datalist id="known-models">
          {known.map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
        <p>
          <Button tone="primary" type="submit" disabled={named === ""}>
            {action}
          </Button>
        </p>
      </form>
    </Dialog>
  );
}
