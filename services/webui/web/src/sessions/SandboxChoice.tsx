import { SANDBOXES, whyNot, whyNotWider } from "../ui/sandboxes";
import styles from "./SessionSettings.module.css";

/** The boundaries, weakest first; those that the session may not have say why. */
export function SandboxChoice({
  chosen,
  demanded,
  kept,
  offered,
  onChoose,
}: {
  chosen: string;
  demanded: string | null;
  /** What it has now, for those who may not widen it; null for those who may. */
  kept: string | null;
  /** That work on the hosts in question; null while that is not known. */
  offered: ReadonlySet<string> | null;
  onChoose: (kind: string) => void;
}) {
  const shown = SANDBOXES.filter((one) => one.kind !== "ssh" || demanded === "ssh" || chosen === "ssh");
  return (
    <fieldset className={styles.choices}>
      <legend className={styles.name}>Sandbox</legend>
      {shown.map((one) => {
        const refused =
          (demanded === null ? null : whyNot(one.kind, demanded)) ??
          (kept === null ? null : whyNotWider(one.kind, kept));
        const absent = offered !== null && !offered.has(one.kind) ? "no host offers it now" : null;
        return (
          <label key={one.kind} className={refused ? `${styles.choice} ${styles.refused}` : styles.choice}>
            <input
              type="radio"
              name="sandbox"
              value={one.kind}
              checked={one.kind === chosen}
              disabled={refused !== null && one.kind !== chosen}
              onChange={() => onChoose(one.kind)}
            />
            <span>
              {one.kind === "local" ? "None" : one.kind}
              <small>
                {one.means}
                {(refused ?? absent) && <span className={styles.why}> ({refused ?? absent})</span>}
              </small>
            </span>
          </label>
        );
      })}
    </fieldset>
  );
}
