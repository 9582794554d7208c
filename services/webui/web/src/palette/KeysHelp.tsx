import { Fragment } from "react";
import { KEYS } from "../keys";
import { Dialog } from "../ui/Dialog";
import styles from "./KeysHelp.module.css";

/** The keys, in a list. */
export function KeysHelp({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl className={styles.keys}>
        {KEYS.map((key) => (
          <Fragment key={key.keys}>
            <dt>
              {key.keys.split("  ").map((one) => (
                <kbd key={one}>{one}</kbd>
              ))}
            </dt>
            <dd>{key.does}</dd>
          </Fragment>
        ))}
      </dl>
    </Dialog>
  );
}
