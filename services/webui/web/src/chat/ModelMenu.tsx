import { useState } from "react";
import { changeModel, changeThinking } from "../sessions/actions";
import { Icon } from "../ui/Icon";
import { Menu } from "../ui/Menu";
import styles from "./Header.module.css";
import { useKnownModels } from "./knownModels";
import { byEffort, modelHint } from "./models";
import { NameModel } from "./NameModel";

/** The model of a session and how hard it thinks; a choice takes effect with the next request. */
export function ModelMenu({ id, model, thinking }: { id: string; model: string; thinking: string }) {
  const known = useKnownModels();
  const [naming, setNaming] = useState(false);
  const used = known.filter((one) => one.used_by.length > 0 || one.name === model);
  const names = [...new Set([model, ...used.map((one) => one.name)])];
  const hints = new Map(known.map((one) => [one.name, modelHint(one)]));
  const levels = byEffort(known.find((one) => one.name === model)?.thinking_levels ?? []);
  return (
    <>
      <Menu
        label={`Model: ${model}`}
        className={`${styles.choice} ${styles.model}`}
        items={[
          ...names.map((choice) => ({
            label: choice,
            hint: hints.get(choice) ?? "",
            checked: choice === model,
            onPick: () => choice !== model && changeModel(id, choice),
          })),
          { label: "Another model…", onPick: () => setNaming(true) },
        ]}
      >
        <span>{model}</span> <Icon name="down" size={12} />
      </Menu>
      {levels.length > 0 && <ThinkingMenu key={`${id} ${thinking}`} id={id} thinking={thinking} levels={levels} />}
      {naming && (
        <NameModel
          model={model}
          known={known.map((one) => one.name)}
          onName={(named) => named !== model && changeModel(id, named)}
          onClose={() => setNaming(false)}
        />
      )}
    </>
  );
}

function ThinkingMenu({ id, thinking, levels }: { id: string; thinking: string; levels: readonly string[] }) {
  const [chosen, setChosen] = useState(thinking); // until the session says the same
  const choices = [{ level: "", label: "as the agent has it" }, ...levels.map((level) => ({ level, label: level }))];
  return (
    <Menu
      label={`Thinking: ${chosen || "as the agent has it"}`}
      className={styles.choice}
      items={choices.map(({ level, label }) => ({
        label,
        checked: level === chosen,
        onPick: () => {
          setChosen(level);
          changeThinking(id, level, () => setChosen(thinking));
        },
      }))}
    >
      {chosen ? `thinks: ${chosen}` : "thinking"} <Icon name="down" size={12} />
    </Menu>
  );
}
