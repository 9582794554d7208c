import type { ReactNode } from "react";
import type { Session } from "../api/types";
import { openSettings, WORK_MODES } from "../sessions/settings";
import { plural } from "../ui/format";
import { Icon } from "../ui/Icon";
import { sandboxOf } from "../ui/sandboxes";
import styles from "./Header.module.css";

/** The boundary of a session, and what else holds for it alone. Each opens the settings. */
export function SettingChips({ session }: { session: Session }) {
  const { id, sandbox, work_mode: workMode, deny = [], host } = session;
  return (
    <>
      {sandbox && (
        <Chip
          id={id}
          quiet={sandbox === "local"}
          text={sandboxOf(sandbox).short}
          says={`Sandbox: ${sandbox}. ${sandboxOf(sandbox).means}.`}
        >
          {sandbox !== "local" && <Icon name="box" size={14} />}
        </Chip>
      )}
      {workMode && (
        <Chip
          id={id}
          text={workMode}
          says={`Kind of work: ${workMode}. ${WORK_MODES.find((one) => one.name === workMode)?.means ?? ""}.`}
        />
      )}
      {deny.length > 0 && (
        <Chip id={id} text={plural(deny.length, "rule")} says={`Denied in this session: ${deny.join(", ")}`}>
          <Icon name="slash" size={14} />
        </Chip>
      )}
      {host && <Chip id={id} text={`on ${host}`} says={`Its workspace is on the host ${host}.`} />}
    </>
  );
}

function Chip({
  id,
  text,
  says,
  quiet = false,
  children,
}: {
  id: string;
  /** What is shown; the name has it too, for those who speak to their computer. */
  text: string;
  says: string;
  quiet?: boolean;
  children?: ReactNode;
}) {
  return (
    <button
      type="button"
      className={quiet ? styles.choice : `${styles.choice} ${styles.set}`}
      title={says}
      aria-label={`${text}. ${says}`}
      onClick={() => openSettings(id)}
    >
      {children} {text}
    </button>
  );
}
