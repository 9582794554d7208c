import { plural } from "../ui/format";
import { Icon } from "../ui/Icon";
import { readToolName } from "../ui/toolName";
import type { ToolSpec } from "../api/status";
import styles from "./Executors.module.css";
import type { ToolGroup } from "./hosts";

const SAYS = new Map([
  ["fs", "Files"],
  ["runtime", "Commands"],
  ["git", "Git"],
  ["web", "Web"],
  ["platform", "Platform"],
  ["mcp", "MCP servers"],
  ["api", "HTTP APIs"],
  ["nats", "NATS services"],
]);

/** All tools of a host, folded; opened, by group. */
export function ToolList({ groups }: { groups: readonly ToolGroup[] }) {
  const all = groups.reduce((sum, group) => sum + group.tools.length, 0);
  return (
    <details className={styles.tools}>
      <summary>
        <Icon name="chevron" size={14} />
        <span className={styles.all}>{plural(all, "tool")}</span>
        <span className={styles.counts}>
          {groups.map((group) => `${group.name} ${group.tools.length}`).join(" · ")}
        </span>
      </summary>
      {groups.map((group) => (
        <section key={group.name} aria-label={SAYS.get(group.name) ?? group.name}>
          <h3>
            {SAYS.get(group.name) ?? group.name} <code>group:{group.name}</code>
          </h3>
          <ul>
            {group.tools.map((tool) => (
              <ToolRow key={tool.name} tool={tool} />
            ))}
          </ul>
        </section>
      ))}
    </details>
  );
}

function ToolRow({ tool }: { tool: ToolSpec }) {
  const { source, own } = readToolName(tool.name);
  return (
    <li>
      <code title={tool.name}>
        {source && <span className={styles.source}>{source} › </span>}
        {own}
      </code>
      <span className={styles.about} title={tool.description}>
        {tool.description}
      </span>
      {tool.read_only && <span className={styles.quiet}>reads only</span>}
    </li>
  );
}
