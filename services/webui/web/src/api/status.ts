import { request } from "./client";
import type * as wire from "./types.generated";

export type { ExecutorInfo, ToolSpec } from "./types.generated";

/** A service of an earlier version may leave the rest out. */
export type ServiceInstance = Pick<wire.ServiceInstance, "name" | "id"> & Partial<wire.ServiceInstance>;

export interface StatusReport {
  services: ServiceInstance[];
  executors: wire.ExecutorInfo[];
  store?: wire.StoreState | null;
  streams?: Record<string, number>;
  backup?: wire.BackupStatus | null;
}

/** Services and executors as NATS reports them. It takes the gateway half a second to hear them all. */
export async function readStatus(signal?: AbortSignal): Promise<StatusReport> {
  return (await (await request("GET", "/api/status", undefined, signal)).json()) as StatusReport;
}
