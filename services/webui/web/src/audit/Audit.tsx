import { useState } from "react";
import { request } from "../api/client";
import { SINCE, usePaged, withFilters, wordsOf } from "../api/pages";
import type { AuditPage, AuditVerified, ListedAudit } from "../api/types.generated";
import { Link, sessionPath } from "../routes";
import { Button } from "../ui/Button";
import { Escaped } from "../ui/Escaped";
import { CopyText } from "../ui/CopyText";
import { FilterChoice, Filters, FilterText } from "../ui/Filters";
import { clock } from "../ui/format";
import { PagedList } from "../ui/PagedList";
import styles from "./Audit.module.css";

const entriesOf = (answer: unknown): readonly ListedAudit[] => (answer as AuditPage).entries;
const VERIFY_MS = 600_000;

/** Parts of the names of operations, or of their words; empty: all. */
const WHAT = [
  { value: "", label: "Everything" },
  { value: "login", label: "Logins" },
  { value: "wrong", label: "Wrong passwords and tokens" },
  { value: "prompt", label: "Prompts" },
  { value: "approval", label: "Decisions" },
  { value: "PATCH", label: "Changes" },
  { value: "DELETE", label: "Deletions" },
  { value: "/api/users", label: "Users" },
  { value: "/api/tokens", label: "Tokens" },
  { value: "/api/pair", label: "Pairing" },
  { value: "/api/credentials", label: "Credentials" },
  { value: "objects", label: "Downloads" },
];

/** Who asked for what, newest first. Of all users, for administrators. */
export function Audit() {
  const [who, setWho] = useState("");
  const [session, setSession] = useState("");
  const [what, setWhat] = useState("");
  const [since, setSince] = useState({ index: SINCE.length - 1, at: 0 });
  const path = withFilters("/api/audit", {
    who,
    session,
    what,
    since: since.at > 0 ? String(since.at) : "",
  });
  const list = usePaged(path, entriesOf);
  return (
    <section aria-labelledby="audit" className={styles.page}>
      <div className={styles.head}>
        <h2 id="audit">Audit log</h2>
        <Button onClick={list.ask}>Refresh</Button>
      </div>
      <Filters>
        <FilterText label="User" onSet={setWho} />
        <FilterChoice label="What" value={what} choices={WHAT} onChoose={setWhat} />
        <FilterText label="Session id" onSet={setSession} />
        <FilterChoice
          label="When"
          value={String(since.index)}
          choices={SINCE.map((one, index) => ({ value: String(index), label: one.label }))}
          onChoose={(chosen) => {
            const { ms = 0 } = SINCE[Number(chosen)] ?? {};
            setSince({ index: Number(chosen), at: ms > 0 ? Date.now() - ms : 0 });
          }}
        />
      </Filters>
      <PagedList list={list} label="Audit log" empty="The log has no matching entries.">
        {(entry) => <Entry key={`${entry.seq} ${entry.at} ${entry.what} ${entry.who ?? ""}`} entry={entry} />}
      </PagedList>
      <Verify />
    </section>
  );
}

function Entry({ entry }: { entry: ListedAudit }) {
  const {
    words,
    what,
    who = "",
    account = "",
    outcome = "ok",
    status = 0,
    session = "",
    about = {},
    fields = [],
  } = entry;
  const facts = [
    ...Object.entries(about).map(([name, id]) => `${name} ${id}`),
    fields.length > 0 ? `sets ${fields.join(", ")}` : "",
    entry.token ? `token ${entry.token.slice(0, 6)}` : "",
    entry.address ?? "",
  ].filter(Boolean);
  return (
    <li className={styles.entry}>
      <time dateTime={new Date(entry.at).toISOString()}>{clock(entry.at)}</time>
      <strong>
        <Escaped text={who || "nobody"} />
        {account && account !== who && ` (${account})`}
      </strong>
      <span title={what}>
        <Escaped text={words} />
      </span>
      {outcome !== "ok" && (
        <span className="bad-news">
          {outcome}
          {status > 0 && ` ${status}`}
        </span>
      )}
      <span className={styles.facts}>
        {session && <Link to={sessionPath(session)}>session {session}</Link>}
        {session && facts.length > 0 && " · "}
        <Escaped text={facts.join(" · ")} />
      </span>
    </li>
  );
}

/** Whether each record names the one before it, and the hash of the last to keep elsewhere. */
function Verify() {
  const [found, setFound] = useState<AuditVerified | null>(null);
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const verify = async (): Promise<void> => {
    setBusy(true);
    setProblem("");
    try {
      const answer = await request("GET", "/api/audit/verify", undefined, AbortSignal.timeout(VERIFY_MS));
      setFound((await answer.json()) as AuditVerified);
    } catch (error) {
      setProblem(wordsOf(error));
    }
    setBusy(false);
  };
  return (
    <div className={styles.verify}>
      <Button disabled={busy} onClick={() => void verify()}>
        {busy ? "Reading the whole log" : "Verify the chain"}
      </Button>
      <p role="status" className={found && !found.whole ? "bad-news" : undefined}>
        {problem && <span className="bad-news">{problem}</span>}
        {found &&
          (found.whole
            ? `Whole: ${found.entries.toLocaleString()} entries in ${found.records.toLocaleString()} records; each names the one before.`
            : `Broken chain: record ${found.broken_at} does not match the one before it.`)}
      </p>
      {found && (
        <CopyText
          label="Hash of the last record"
          text={found.head}
          about="Store it elsewhere to prove later that nothing up to here was changed: fairlead audit verify --head …"
        />
      )}
    </div>
  );
}
