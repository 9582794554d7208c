import { useState } from "react";
import { useMay } from "../api/rights";
import { fork, move, moveCarefully, stopsRun } from "../session/branching";
import type { LiveSession } from "../session/liveSession";
import { useRights } from "../session/open";
import { useStore } from "../session/store";
import { type Place, placesOf } from "../session/tree";
import { Button, IconButton } from "../ui/Button";
import { Confirm } from "../ui/Confirm";
import { Icon } from "../ui/Icon";
import { LabelButton } from "./Labels";
import styles from "./Branches.module.css";

/** `‹ 2/3 ›`: which of the messages in the same place this one is. The arrows go to the others. */
export function BranchArrows({ place, session }: { place: Place | null; session: LiveSession }) {
  const moving = useStore(session.store, (state) => state.moving !== null);
  const { write } = useRights(session);
  if (!place) return null;
  const { index, ends } = place;
  const count = Math.max(ends.length, index + 1); // a reply that is being written is not in the log yet
  const to = (other: number): void => {
    const entry = ends[other];
    if (entry) moveCarefully(session, { action: "navigate", entry });
  };
  return (
    <div className={styles.arrows} role="group" aria-label="Versions" aria-busy={moving}>
      {write && (
        <IconButton label="Previous version" small disabled={moving || index === 0} onClick={() => to(index - 1)}>
          <Icon name="back" size={14} />
        </IconButton>
      )}
      <span aria-label={`Version ${index + 1} of ${count}`}>
        {index + 1}/{count}
      </span>
      {write && (
        <IconButton
          label="Next version"
          small
          disabled={moving || index >= ends.length - 1}
          onClick={() => to(index + 1)}
        >
          <Icon name="chevron" size={14} />
        </IconButton>
      )}
    </div>
  );
}

export function isSamePlace(a: Place | null | undefined, b: Place | null | undefined): boolean {
  if (!a || !b) return !a === !b;
  return a.index === b.index && a.ends.length === b.ends.length && a.ends.every((end, at) => end === b.ends[at]);
}

/** What can be done with a reply, beside copying it. */
export function ReplyActions({
  session,
  asked,
  from,
}: {
  session: LiveSession;
  asked: string | null;
  from: string | null;
}) {
  const moving = useStore(session.store, (state) => state.moving);
  const { write } = useRights(session);
  const forks = useMay("write");
  return (
    <>
      {asked && write && (
        <IconButton
          label="Answer again"
          small
          disabled={moving !== null}
          onClick={() => moveCarefully(session, { action: "regenerate", entry: asked })}
        >
          <Icon name="again" />
        </IconButton>
      )}
      {from && forks && (
        <IconButton label="Fork from here" small onClick={() => void fork(session, from)}>
          <Icon name="fork" />
        </IconButton>
      )}
      {from && write && (
        <IconButton
          label="Go on from here"
          small
          disabled={moving !== null}
          onClick={() => session.store.set((state) => ({ ...state, asksToMove: { action: "navigate", entry: from } }))}
        >
          <Icon name="return" />
        </IconButton>
      )}
      {from && write && <LabelButton session={session} id={from} />}
    </>
  );
}

/** Says that the conversation stands before something that was said already, and leads back to it. */
export function EarlierPoint({ session }: { session: LiveSession }) {
  const next = useStore(session.store, ({ view, outbox }) =>
    view.run || view.partial || outbox.length > 0 ? null : placesOf(view.log, view.inherited).next,
  );
  const moving = useStore(session.store, (state) => state.moving !== null);
  const { write } = useRights(session);
  if (!next) return null;
  const last = next.ends.at(-1);
  return (
    <p className={styles.earlier}>
      <span>
        You are at an earlier point. {next.ends.length === 1 ? "One branch goes" : `${next.ends.length} branches go`} on
        from here.
      </span>
      {write && (
        <Button
          tone="quiet"
          disabled={moving}
          onClick={() => last && void move(session, { action: "navigate", entry: last })}
        >
          Go to the last one
        </Button>
      )}
    </p>
  );
}

/** Asks before a run is stopped to go on elsewhere. */
export function AskToMove({ session }: { session: LiveSession }) {
  const wish = useStore(session.store, (state) => state.asksToMove);
  const runs = useStore(session.store, stopsRun);
  const [tells, setTells] = useState(false);
  if (!wish) return null;
  const go = (): void => {
    void move(session, wish.action === "navigate" && tells ? { ...wish, summarize: true } : wish);
    setTells(false);
  };
  return (
    <Confirm
      title={runs ? "Stop the run first?" : "Go on from there?"}
      text={runs ? STOPS : LEAVES}
      action={runs ? "Stop and go" : "Go"}
      tone={runs ? "danger" : "primary"}
      onYes={go}
      onClose={() => session.store.set((state) => ({ ...state, asksToMove: null }))}
    >
      {wish.action === "navigate" && (
        <label className={styles.tells}>
          <input type="checkbox" checked={tells} onChange={(event) => setTells(event.target.checked)} />
          <span>
            Tell the model what was tried on the branch that is left
            <small>The model gets a summary, which takes a moment to write.</small>
          </span>
        </label>
      )}
    </Confirm>
  );
}

const STOPS =
  "Its work so far stays on its branch; the arrows lead back to it. Queued messages move to the branch that you go to.";
const LEAVES = "Later messages stay on their branch; the arrows lead back to it.";
