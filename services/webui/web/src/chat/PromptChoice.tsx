import type { PromptChoices } from "../session/outbox";
import { Icon } from "../ui/Icon";
import { Menu, type MenuItem } from "../ui/Menu";
import { useKnownModels } from "./knownModels";
import { byEffort, modelHint, saysOf } from "./models";
import styles from "./PromptChoice.module.css";

/** The model and the effort for the next message alone; what the session has stays. */
export function PromptChoice({
  model,
  chosen,
  onChoose,
}: {
  /** Of the session. */
  model: string;
  chosen: PromptChoices;
  onChoose: (chosen: PromptChoices) => void;
}) {
  const known = useKnownModels();
  const others = known.filter((one) => one.used_by.length > 0 && one.name !== model);
  const used = known.find((one) => one.name === (chosen.model ?? model));
  const levels = byEffort(used?.thinking_levels ?? []);
  const isSet = Boolean(chosen.model ?? chosen.thinking);
  if (others.length === 0 && levels.length === 0 && !isSet) return null;
  const items: MenuItem[] = [
    { label: "The session’s setting", hint: model, checked: !isSet, onPick: () => onChoose({}) },
    ...levels.map((level) => ({
      label: `Thinking: ${level}`,
      checked: chosen.thinking === level,
      onPick: () => onChoose({ ...chosen, thinking: level }),
    })),
    ...others.map((other) => ({
      label: other.name,
      hint: modelHint(other),
      checked: chosen.model === other.name,
      onPick: () => {
        const thinks = chosen.thinking && other.thinking_levels.includes(chosen.thinking);
        onChoose({ model: other.name, ...(thinks ? { thinking: chosen.thinking } : {}) });
      },
    })),
  ];
  return (
    <Menu
      label={`For this message: ${saysOf(chosen) || "as the session has it"}`}
      className={isSet ? `${styles.choice} ${styles.set}` : styles.choice}
      items={items}
    >
      <Icon name="sliders" />
      {isSet && <span>{saysOf(chosen)}</span>}
    </Menu>
  );
}
