import type { ExecutorInfo, ServiceInstance, ToolSpec } from "../api/status";

/** One executor, with the defaults filled in. */
export interface Executor {
  name: string;
  pool: string;
  labels: readonly string[];
  sandboxes: readonly string[];
  running: number;
  capacity: number;
  draining: boolean;
  version: string;
}

export interface ToolGroup {
  name: string;
  tools: readonly ToolSpec[];
}

/** All executors of one machine. They share its workspaces, and as a rule everything else. */
export interface Host {
  name: string;
  executors: readonly Executor[];
  /** What all of them have; null where they differ. */
  shared: Pick<Nullable<Executor>, "pool" | "labels" | "sandboxes" | "version">;
  running: number;
  capacity: number;
  draining: boolean;
  groups: readonly ToolGroup[];
  warnings: readonly string[];
  workspace: string;
}

type Nullable<T> = { [K in keyof T]: T[K] | null };

export interface Service {
  name: string;
  instances: number;
  versions: readonly string[];
  /** When the oldest one started, in milliseconds since 1970. */
  since: number | null;
}

const GROUPS = ["fs", "runtime", "git", "web", "platform", "mcp", "api", "nats"];
const OWN = ["agent", "gateway", "scheduler", "tools", "webui"];
const PREFIX = "fairlead-";

/** Executors by machine, in the order of their names. */
export function hostsOf(infos: readonly ExecutorInfo[]): Host[] {
  const names = [...new Set(infos.map((info) => info.host))].sort();
  return names.map((name) =>
    hostOf(
      name,
      infos.filter((info) => info.host === name),
    ),
  );
}

function hostOf(name: string, infos: readonly ExecutorInfo[]): Host {
  const executors = infos.map(executorOf).sort((a, b) => a.name.localeCompare(b.name));
  const tools = new Map(infos.flatMap((info) => info.tools ?? []).map((tool) => [tool.name, tool]));
  return {
    name,
    executors,
    shared: {
      pool: same(executors, (one) => one.pool),
      labels: same(executors, (one) => one.labels),
      sandboxes: same(executors, (one) => one.sandboxes),
      version: same(executors, (one) => one.version),
    },
    running: executors.reduce((sum, one) => sum + one.running, 0),
    capacity: executors.reduce((sum, one) => sum + one.capacity, 0),
    draining: executors.every((one) => one.draining),
    groups: groupsOf([...tools.values()]),
    warnings: [...new Set(infos.flatMap((info) => info.warnings ?? []))],
    workspace: infos.find((info) => info.default_workspace)?.default_workspace ?? "",
  };
}

function executorOf(info: ExecutorInfo): Executor {
  return {
    name: info.executor,
    pool: info.pool ?? "default",
    labels: Object.entries(info.labels ?? {})
      .map(([label, value]) => `${label}=${value}`)
      .sort(),
    sandboxes: info.sandboxes ?? ["local"],
    running: info.running ?? 0,
    capacity: info.capacity ?? 8,
    draining: info.draining ?? false,
    version: info.version ?? "",
  };
}

function same<T>(executors: readonly Executor[], read: (one: Executor) => T): T | null {
  const [first, ...rest] = executors.map(read);
  if (first === undefined) return null;
  return rest.every((value) => JSON.stringify(value) === JSON.stringify(first)) ? first : null;
}

/** Tools by group, the built-in groups first; by name within a group. */
export function groupsOf(tools: readonly ToolSpec[]): ToolGroup[] {
  const groups = new Map<string, ToolSpec[]>();
  for (const tool of tools) {
    const name = tool.group || "other";
    groups.set(name, [...(groups.get(name) ?? []), tool]);
  }
  const place = (name: string): number => (GROUPS.includes(name) ? GROUPS.indexOf(name) : GROUPS.length);
  return [...groups]
    .map(([name, members]) => ({ name, tools: members.sort((a, b) => a.name.localeCompare(b.name)) }))
    .sort((a, b) => place(a.name) - place(b.name) || a.name.localeCompare(b.name));
}

/** Services by name, and those of Fairlead's own that no one heard of. */
export function servicesOf(instances: readonly ServiceInstance[]): Service[] {
  const names = new Set([...OWN, ...instances.map((one) => one.name.replace(PREFIX, ""))]);
  return [...names].sort().map((name) => {
    const own = instances.filter((one) => one.name.replace(PREFIX, "") === name);
    const starts = own.map((one) => Date.parse(one.started ?? "")).filter((start) => Number.isFinite(start));
    return {
      name,
      instances: own.length,
      versions: [...new Set(own.map((one) => one.version ?? ""))].filter(Boolean).sort(),
      since: starts.length > 0 ? Math.min(...starts) : null,
    };
  });
}
