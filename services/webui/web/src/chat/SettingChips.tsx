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
        <Chip id={id} quiet={sandbox === "local"} says={`Sandbox: ${sandbox}. ${sandboxOf(sandbox).means}.`}>
          {sandbox !== "local" && <Icon name="box" size={14} />} {sandboxOf(sandbox).short}
        </Chip>
      )}
      {workMode && (
        <Chip
          id={id}
          says={`Kind of work: ${workMode}. ${WORK_MODES.find((one) => one.name === workMode)?.means ?? ""}.`}
        >
          {workMode}
        </Chip>
      )}
      {deny.length > 0 && (
        <Chip id={id} says={`Denied in this session: ${deny.join(", ")}`}>
          <Icon name="slash" size={14} /> {plural(deny.length, "rule")}
        </Chip>
      )}
      {host && (
        <Chip id={id} says={`Its workspace is on the host ${host}.`}>
          on {host}
        </Chip>
      )}
    </>
  );
}

function Chip({
  id,
  says,
  quiet = false,
  children,
}: {
  id: string;
  says: string;
  quiet?: boolean;
  children: ReactNode;
}) {
  return (
    <button
      type="button"
      className={quiet ? styles.choice : `${styles.choice} ${styles.set}`}
      title={says}
      aria-label={says}
      onClick={() => openSettings(id)}
    >
      {children}
    </button>
  );
}
