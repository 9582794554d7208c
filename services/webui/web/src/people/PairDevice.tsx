import { lazy, Suspense, useEffect, useState } from "react";
import { wordsOf } from "../api/pages";
import { Button } from "../ui/Button";
import { CopyText } from "../ui/CopyText";
import { Dialog } from "../ui/Dialog";
import { elapsed } from "../ui/format";
import { Spinner } from "../ui/Spinner";
import { useNow } from "../ui/useNow";
import { isLocalAddress, type MadePairing, people } from "./people";
import styles from "./People.module.css";

const QrCode = lazy(() => import("./QrCode").then((m) => ({ default: m.QrCode })));

/** A link and a code, good once, with which another device or person logs in. `user`: null is oneself. */
export function PairDevice({ user, onClose }: { user: string | null; onClose: () => void }) {
  const [made, setMade] = useState<MadePairing | null>(null);
  const [problem, setProblem] = useState("");
  const [times, setTimes] = useState(0);
  useEffect(() => {
    // StrictMode calls effects twice while one develops; each code counts towards a limit, so the first wins.
    const timer = setTimeout(() => {
      people.pair(user === null ? {} : { user }).then(setMade, (error: unknown) => setProblem(wordsOf(error)));
    }, 0);
    return () => clearTimeout(timer);
  }, [user, times]);
  const again = (): void => {
    setMade(null);
    setProblem("");
    setTimes((before) => before + 1);
  };
  const now = useNow(made !== null);
  const left = made ? made.expires_at - now : 0;
  return (
    <Dialog title={user === null ? "Pair a device" : `Invite ${user}`} onClose={onClose}>
      {problem && (
        <p className="bad-news" role="alert">
          {problem}
        </p>
      )}
      {!made && !problem && <Spinner />}
      {made && left <= 0 && <p role="status">The code has expired.</p>}
      {made && left > 0 && (
        <>
          <p className={styles.about}>
            Whoever opens this link first is logged in as <strong>{made.user}</strong> ({made.role}). It is good once,
            for {elapsed(left)} more.
          </p>
          <div className={styles.pair}>
            <Suspense fallback={<Spinner />}>
              <QrCode text={`${location.origin}${made.path}`} label="QR code of the link" />
            </Suspense>
          </div>
          {isLocalAddress(location.hostname) && (
            <p className={styles.caution}>
              {location.hostname} is this machine alone. For another device open this page at an address that the device
              can reach, and pair there.
            </p>
          )}
          <CopyText label="Link" text={`${location.origin}${made.path}`} />
          <CopyText label="Code" text={made.code} about="For a terminal: fairlead pair --redeem CODE" />
        </>
      )}
      <div className={styles.answers}>
        {(problem || (made && left <= 0)) && <Button onClick={again}>New code</Button>}
        <Button onClick={onClose}>Close</Button>
      </div>
    </Dialog>
  );
}
