import { useState } from "react";
import { request } from "../api/client";
import { usePaged, wordsOf } from "../api/pages";
import type { DeadLetter, DeadLetterPage } from "../api/types.generated";
import { Link, sessionPath } from "../routes";
import { Button } from "../ui/Button";
import { Confirm } from "../ui/Confirm";
import { Escaped } from "../ui/Escaped";
import { clock } from "../ui/format";
import { PagedList } from "../ui/PagedList";
import { Spinner } from "../ui/Spinner";
import { complain } from "../ui/toast";
import styles from "./DeadLetters.module.css";

const lettersOf = (answer: unknown): readonly DeadLetter[] => (answer as DeadLetterPage).letters;

/** Messages that nobody could handle: requeued once the cause is fixed, or discarded. */
export function DeadLetters() {
  const list = usePaged("/api/dead", lettersOf);
  return (
    <section aria-labelledby="dead" className={styles.page}>
      <div className={styles.head}>
        <h2 id="dead">Dead letters</h2>
        <Button onClick={list.ask}>Refresh</Button>
      </div>
      <p className={styles.about}>
        Messages that could not be read or handled. They are kept for 90 days instead of being tried for ever.
      </p>
      <PagedList list={list} label="Dead letters" empty="There are none: every message was processed.">
        {(letter) => <Letter key={letter.id} letter={letter} onSettled={list.ask} />}
      </PagedList>
    </section>
  );
}

function Letter({ letter, onSettled }: { letter: DeadLetter; onSettled: () => void }) {
  const [asks, setAsks] = useState<"retry" | "discard" | null>(null);
  const [open, setOpen] = useState(false);
  const { id } = letter;
  const settle = (how: "retry" | "discard"): void =>
    void request("POST", `/api/dead/${id}/${how}`, {})
      .catch((error: unknown) => complain(how === "retry" ? "It was not requeued" : "It was not discarded", error))
      .finally(onSettled);
  return (
    <li className={styles.letter}>
      <div className={styles.line}>
        <strong>{letter.origin}</strong>
        <time dateTime={new Date(letter.at).toISOString()}>{clock(letter.at)}</time>
        {letter.session && <Link to={sessionPath(letter.session)}>session {letter.session}</Link>}
      </div>
      <p>
        <Escaped text={letter.reason} />
      </p>
      <code className={styles.subject}>
        <Escaped text={letter.subject} />
      </code>
      {letter.no_retry && <p className={styles.about}>It cannot be requeued: {letter.no_retry}</p>}
      <div className={styles.ways}>
        {!letter.no_retry && (
          <Button aria-label={`Requeue letter ${id}`} onClick={() => setAsks("retry")}>
            Requeue
          </Button>
        )}
        <Button aria-label={`Discard letter ${id}`} onClick={() => setAsks("discard")}>
          Discard
        </Button>
        <Button tone="quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Hide the message" : "Show the message"}
        </Button>
      </div>
      {open && <Payload id={id} />}
      {asks === "retry" && (
        <Confirm
          title="Requeue it?"
          text="It goes into its mailbox once, as if it arrived now. Fix the cause first."
          action="Requeue"
          tone="primary"
          onYes={() => settle("retry")}
          onClose={() => setAsks(null)}
        />
      )}
      {asks === "discard" && (
        <Confirm
          title="Discard it?"
          text="The message is deleted without being processed. This cannot be undone."
          action="Discard"
          onYes={() => settle("discard")}
          onClose={() => setAsks(null)}
        />
      )}
    </li>
  );
}

/** What the message says; strangers may have written it. */
function Payload({ id }: { id: number }) {
  const [text, setText] = useState<string | null>(null);
  const [asked, setAsked] = useState(false);
  if (!asked) {
    setAsked(true);
    void request("GET", `/api/dead/${id}`)
      .then(async (answer) => ((await answer.json()) as DeadLetter).payload ?? "")
      .then(setText, (error: unknown) => setText(wordsOf(error)));
  }
  if (text === null) return <Spinner />;
  return (
    <pre className={styles.payload} tabIndex={0}>
      <Escaped text={text} />
    </pre>
  );
}
