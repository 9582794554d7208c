import { request } from "./client";

// What GET /api/status answers. Fields with their default value are left out.

export interface ToolSpec {
  name: string;
  description: string;
  read_only?: boolean;
  group?: string;
}

export interface ExecutorInfo {
  executor: string;
  host: string;
  pool?: string;
  capacity?: number;
  running?: number;
  labels?: Record<string, string>;
  draining?: boolean;
  sandboxes?: string[];
  tools?: ToolSpec[];
  workspace_root?: string;
  default_workspace?: string;
  version?: string;
  warnings?: string[];
}

export interface ServiceInstance {
  name: string;
  id: string;
  version?: string;
  /** When it started, as RFC 3339. */
  started?: string;
  metadata?: Record<string, string>;
}

export interface StatusReport {
  services: ServiceInstance[];
  executors: ExecutorInfo[];
}

/** Services and executors as NATS reports them. It takes the gateway half a second to hear them all. */
export async function readStatus(signal?: AbortSignal): Promise<StatusReport> {
  return (await (await request("GET", "/api/status", undefined, signal)).json()) as StatusReport;
}
