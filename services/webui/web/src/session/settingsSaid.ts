import { sharedInWords } from "../api/rights";
import type { SessionInfoEntry } from "../api/types";

/** What an entry changes in the settings of its session, in words; null when there is nothing to say. */
export function settingsSaid(entry: SessionInfoEntry, host: string | null): string | null {
  const { sandbox, work_mode, deny, placement, shared } = entry;
  const said: string[] = [];
  if (sandbox) said.push(`Sandbox is now ${sandbox === "local" ? "none" : sandbox}`);
  if (typeof work_mode === "string") said.push(work_mode ? `Work mode is now ${work_mode}` : "Work mode is now none");
  if (deny) said.push(deny.length > 0 ? `Denied here: ${deny.join(", ")}` : "No rules of this session deny anything");
  // A workspace that is made for the first time is no news; an agent's folder has a place only after a move.
  const moved = placement && (host !== null ? placement.host !== host : (placement.kind ?? "folder") === "folder");
  if (moved) said.push(`The workspace is now on ${placement.host}`);
  if (shared) said.push(`Shared: ${sharedInWords({ shared }) || "with nobody any more"}`);
  return said.join(" · ") || null;
}
