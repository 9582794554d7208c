import { memo, useEffect } from "react";
import type { LiveSession } from "../session/liveSession";
import { useStore } from "../session/store";
import type { Item, PartialReply } from "../session/view";
import { Button } from "../ui/Button";
import { Icon } from "../ui/Icon";
import { Spinner } from "../ui/Spinner";
import { ApprovalCard } from "../approvals/ApprovalCard";
import { Activity } from "./Activity";
import { AssistantMessage } from "./AssistantMessage";
import styles from "./Conversation.module.css";
import { Outbox } from "./Outbox";
import { RunEnd } from "./RunEnd";
import { useFollow } from "./useFollow";
import { UserMessage } from "./UserMessage";

/** The whole conversation, which keeps to its end while one reads there. */
export function Conversation({ session }: { session: LiveSession }) {
  const settled = useStore(session.store, (state) => state.view.items);
  const partial = useStore(session.store, (state) => state.view.partial);
  // One list: the entry that replaces a partial takes its place on the page, with what was opened in it.
  const items = partial ? [...settled, asItem(partial)] : settled;
  const phase = useStore(session.store, (state) => state.phase);
  const problem = useStore(session.store, (state) => state.problem);
  const older = useStore(session.store, (state) => state.older);
  const { scroller, content, atEnd, toEnd } = useFollow(
    session.id,
    phase === "ready",
    items[0]?.id ?? "",
    () => void session.loadOlder(),
  );

  return (
    <div className={styles.frame}>
      <div ref={scroller} className={styles.scroller} tabIndex={-1}>
        <div ref={content} className={styles.column} role="log" aria-live="off" aria-label="Conversation">
          {phase === "loading" && (
            <p className={styles.loading}>
              <Spinner /> Loading
            </p>
          )}
          {phase === "failed" && (
            <div className={styles.failed}>
              <p>This session could not be loaded: {problem}</p>
              <Button onClick={() => location.reload()}>Load again</Button>
            </div>
          )}
          {older !== "none" && (
            <p className={styles.loading}>
              {older === "loading" ? <Spinner /> : null}
              <Button tone="quiet" onClick={() => void session.loadOlder()}>
                Earlier messages
              </Button>
            </p>
          )}
          {items.map((item, index) => (
            <ItemView
              key={item.id}
              item={item}
              session={session}
              words={item.kind === "run_end" ? wordsBefore(items, index) : ""}
              live={index === settled.length}
              gap={index === settled.length && partial?.gap === true}
            />
          ))}
          <Outbox session={session} />
          <Pending session={session} />
          <Activity session={session} />
        </div>
      </div>
      {!atEnd && (
        <button type="button" className={styles.toEnd} onClick={toEnd} aria-label="Go to the end">
          <Icon name="arrowDown" />
        </button>
      )}
    </div>
  );
}

interface ItemProps {
  item: Item;
  session: LiveSession;
  /** What a run that ended here said last. */
  words: string;
  live: boolean;
  gap: boolean;
}

const ItemView = memo(function ItemView({ item, session, words, live, gap }: ItemProps) {
  switch (item.kind) {
    case "user":
      return <UserMessage item={item} />;
    case "assistant":
      return <AssistantMessage id={item.id} message={item.message} session={session} live={live} gap={gap} />;
    case "run_end":
      return <RunEnd end={item.end} words={words} />;
    case "note":
      return <p className={styles.note}>{item.text}</p>;
  }
});

/** The approvals that this session waits for; the keys answer the first. */
function Pending({ session }: { session: LiveSession }) {
  const approvals = useStore(session.store, (state) => state.view.approvals);
  useEffect(() => {
    if (approvals.length > 0) document.querySelector("[data-approval]")?.scrollIntoView({ block: "nearest" });
  }, [approvals.length]);
  return approvals.map((approval, index) => (
    <ApprovalCard key={approval.id} approval={approval} active={index === 0} />
  ));
}

function asItem(partial: PartialReply): Item {
  return { kind: "assistant", id: partial.messageId, ts: 0, message: partial.message };
}

/** What the assistant said last before a run ended, to be copied. */
function wordsBefore(items: readonly Item[], index: number): string {
  const item = items[index - 1];
  if (item?.kind !== "assistant") return "";
  return item.message.content
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join("\n\n");
}
