import { memo, type ReactNode } from "react";
import type { LiveSession } from "../session/liveSession";
import { useStoreWhile } from "../session/store";
import type { Item, PartialReply } from "../session/view";
import { AssistantMessage } from "./AssistantMessage";
import styles from "./Conversation.module.css";
import { stretchesOf, unansweredAt, wordsBefore } from "./exchanges";
import { RunEnd } from "./RunEnd";
import { UserMessage } from "./UserMessage";

interface Props {
  items: readonly Item[];
  session: LiveSession;
  /** The one that grows: a reply that is being written belongs to it. */
  last: boolean;
}

/** A part of the conversation. Only the last one is drawn again while a reply is written. */
export const Exchange = memo(function Exchange({ items, session, last }: Props) {
  const partial = useStoreWhile(last, session.store, (state) => state.view.partial, null);
  // One list: the entry that replaces a partial takes its place on the page, with what was opened in it.
  const shown = partial ? [...items, asItem(partial)] : items;
  const unanswered = last && !partial ? unansweredAt(items) : -1;
  const draw = (item: Item, index: number): ReactNode => (
    <ItemView
      key={item.id}
      item={item}
      session={session}
      words={item.kind === "run_end" ? wordsBefore(items, index) : ""}
      live={index === items.length}
      gap={index === items.length && partial?.gap === true}
      unanswered={index === unanswered}
    />
  );
  return stretchesOf(shown).map(({ from, items: stretch }) => (
    <div key={from} className={styles.stretch}>
      {stretch.map((item, index) => draw(item, from + index))}
    </div>
  ));
}, isSame);

function isSame(before: Props, after: Props): boolean {
  return (
    before.session === after.session &&
    before.last === after.last &&
    before.items.length === after.items.length &&
    before.items.every((item, index) => item === after.items[index])
  );
}

interface ItemProps {
  item: Item;
  session: LiveSession;
  /** What a run that ended here said last. */
  words: string;
  live: boolean;
  gap: boolean;
  /** A run that ended here can go on. */
  unanswered: boolean;
}

const ItemView = memo(function ItemView({ item, session, words, live, gap, unanswered }: ItemProps) {
  switch (item.kind) {
    case "user":
      return <UserMessage item={item} />;
    case "assistant":
      return <AssistantMessage id={item.id} message={item.message} session={session} live={live} gap={gap} />;
    case "run_end":
      return <RunEnd end={item.end} expired={item.expired} words={words} goOn={unanswered ? session : null} />;
    case "note":
      return <p className={styles.note}>{item.text}</p>;
  }
});

function asItem(partial: PartialReply): Item {
  return { kind: "assistant", id: partial.messageId, ts: 0, message: partial.message };
}
