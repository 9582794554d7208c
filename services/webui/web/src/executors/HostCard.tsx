import { Icon } from "../ui/Icon";
import { sandboxOf } from "../ui/sandboxes";
import styles from "./Executors.module.css";
import type { Executor, Host } from "./hosts";
import { Load } from "./Load";
import { ToolList } from "./ToolList";

/** One machine: what it offers, how busy it is, and what a person should look at. */
export function HostCard({ host }: { host: Host }) {
  const { pool, labels, sandboxes, version } = host.shared;
  return (
    <section className={styles.host} aria-label={`Host ${host.name}`}>
      <header className={styles.head}>
        <h2>{host.name}</h2>
        {host.draining && <Draining />}
        <span className={styles.space} />
        <Load running={host.running} capacity={host.capacity} label={`Calls on ${host.name}`} />
      </header>
      <dl className={styles.facts}>
        {pool !== null && <Fact name="Pool" value={pool} />}
        {labels !== null && labels.length > 0 && <Chips name="Labels" values={labels} />}
        {sandboxes !== null && <Sandboxes kinds={sandboxes} />}
        {version && <Fact name="Version" value={version} />}
        {host.workspace && <Fact name="Workspace" value={host.workspace} />}
      </dl>
      {host.warnings.length > 0 && (
        <ul className={styles.warnings} aria-label={`Warnings of ${host.name}`}>
          {host.warnings.map((warning) => (
            <li key={warning}>
              <Icon name="warning" size={14} /> <span>{warning}</span>
            </li>
          ))}
        </ul>
      )}
      <ul className={styles.executors} aria-label={`Executors of ${host.name}`}>
        {host.executors.map((executor) => (
          <ExecutorRow key={executor.name} executor={executor} host={host} />
        ))}
      </ul>
      <ToolList groups={host.groups} />
    </section>
  );
}

/** What is the same for all stands above, on the host. */
function ExecutorRow({ executor, host }: { executor: Executor; host: Host }) {
  const { shared } = host;
  const own = [
    shared.version === null && executor.version,
    shared.pool === null && `pool ${executor.pool}`,
    shared.labels === null && executor.labels.join(", "),
    shared.sandboxes === null && executor.sandboxes.map((kind) => sandboxOf(kind).short).join(", "),
  ].filter(Boolean);
  return (
    <li className={styles.executor}>
      <code className={styles.id}>{executor.name}</code>
      {executor.draining && !host.draining && <Draining />}
      <span className={styles.own}>{own.join(" · ")}</span>
      <Load running={executor.running} capacity={executor.capacity} label={`Calls on ${executor.name}`} />
    </li>
  );
}

function Draining() {
  return (
    <span className={styles.draining} title="Finishes running calls and accepts no new ones">
      draining
    </span>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        <code>{value}</code>
      </dd>
    </div>
  );
}

function Chips({ name, values }: { name: string; values: readonly string[] }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd className={styles.chips}>
        {values.map((value) => (
          <code key={value}>{value}</code>
        ))}
      </dd>
    </div>
  );
}

function Sandboxes({ kinds }: { kinds: readonly string[] }) {
  return (
    <div>
      <dt>Sandboxes</dt>
      <dd className={styles.chips}>
        {kinds.map((kind) => (
          <span key={kind} title={sandboxOf(kind).means} className={kind === "local" ? styles.quiet : styles.chip}>
            {kind === "local" ? "local (no sandbox)" : kind}
          </span>
        ))}
      </dd>
    </div>
  );
}
