// What the gateway sends and takes, as in docs/api.md. Fields with their default value are left out.

export type Status = "idle" | "running" | "waiting_approval";
export type Mode = "safe" | "ask" | "allow-all";
export type Decision = "once" | "session" | "always" | "deny";
export type SendKind = "prompt" | "steer" | "followup";
export type Source = SendKind | "system";
export type RunOutcome =
  | "completed"
  | "truncated"
  | "aborted"
  | "failed"
  | "timed_out"
  | "turn_limit"
  | "budget"
  | "waiting_approval"
  | "unknown";
export type ToolStatus = "ok" | "error" | "cancelled" | "timed_out" | "skipped" | "denied" | "unknown";
export type Json = Record<string, unknown>;

export interface Usage {
  input_tokens?: number;
  output_tokens?: number;
  cache_read_tokens?: number;
  cache_write_tokens?: number;
  cost_usd?: number;
}

export interface Session {
  id: string;
  agent: string;
  title?: string | null;
  mode: string;
  model: string;
  /** The boundary that calls get; empty when nobody knows the agent. */
  sandbox?: string;
  /** Rules of this session alone. */
  deny?: string[];
  work_mode?: string;
  /** Empty: the workspace is where the agent's is. */
  host?: string;
  workspace_kind?: string;
  /** `api`: made for one call of the OpenAI API, and listed only when that is asked for. Empty: an ordinary one. */
  source?: string;
  status: Status;
  created_at: number;
  updated_at: number;
  last_outcome?: RunOutcome | null;
  preview?: string | null;
  usage?: Usage;
  context_tokens?: number;
  context_window?: number;
  queued?: number;
  approvals?: number;
  last_seq?: number;
  /** Sequence of the last entry that shows people something new; 0 or missing: not known. */
  news_seq?: number;
}

export interface Approval {
  id: string;
  session: string;
  call_id: string;
  tool: string;
  arguments: Json;
  workspace: string;
  host: string;
  why: string;
  shown_hash: string;
  expires_at: number;
  sandbox?: string;
  access?: string;
  remote?: string;
  /** What `session` and `always` would allow, in words; one that is missing is not on offer. */
  grants?: Partial<Record<Decision, string>>;
  /** The model had read what strangers wrote when it asked for this. */
  tainted?: boolean;
  requested_at?: number;
}

export interface Agent {
  name: string;
  description?: string;
  model?: string;
  mode?: string;
  tools?: string[];
  work_mode?: string;
  sandbox?: { kind: string; when: "all" | "non-main" };
}

export interface Me {
  user: string;
  scopes: string[];
}

export interface TextBlock {
  type: "text";
  text: string;
}
export interface ImageBlock {
  type: "image";
  object: string;
  media_type: string;
  name?: string;
}
export interface ThinkingBlock {
  type: "thinking";
  text: string;
  duration_ms?: number;
}
export interface ToolCallBlock {
  type: "tool_call";
  call_id: string;
  name: string;
  arguments?: Json | null;
  raw_arguments?: string | null;
  host?: string | null;
}
export type ContentBlock = TextBlock | ImageBlock;
export type AssistantBlock = TextBlock | ThinkingBlock | ToolCallBlock;

export interface UserMessage {
  role: "user";
  content: ContentBlock[];
  source?: Source;
  seqs?: number[];
  keys?: string[];
  sender?: string;
}
export interface AssistantMessage {
  role: "assistant";
  content: AssistantBlock[];
  model: string;
  stop_reason?: "stop" | "length" | "tool_use" | "error" | "aborted";
  usage?: Usage;
  error?: string | null;
  duration_ms?: number;
}
export interface ToolOutcome {
  status: ToolStatus;
  content: ContentBlock[];
  is_error?: boolean;
  exit_code?: number | null;
  duration_ms?: number;
  output_object?: string | null;
  output_bytes?: number | null;
  details?: Json;
}
export interface ToolResultMessage {
  role: "tool_result";
  call_id: string;
  name: string;
  outcome: ToolOutcome;
}

interface EntryBase {
  id: string;
  parent_id?: string | null;
  ts?: number;
  run_id?: string | null;
  seq: number;
  /** Sequence of the last mail that was consumed when this was written. */
  cursor?: number;
}
export type MessageEntry = EntryBase & {
  type: "message";
  message: UserMessage | AssistantMessage | ToolResultMessage;
  items?: string[];
};
export type QueuedEntry = EntryBase & {
  type: "queued";
  kind: Source;
  content: ContentBlock[];
  key?: string | null;
};
export type RunEndEntry = EntryBase & {
  type: "run_end";
  outcome: RunOutcome;
  error?: string | null;
  error_code?: string;
  turns?: number;
  usage?: Usage;
  duration_ms?: number;
  keys?: string[];
};
export type ApprovalRequestEntry = EntryBase & { type: "approval_request" } & Omit<Approval, "id" | "session">;
export type SessionInfoEntry = EntryBase & {
  type: "session_info";
  title?: string | null;
  agent?: string | null;
  sandbox?: string | null;
  deny?: string[] | null;
  work_mode?: string | null;
  placement?: { host: string; workspace: string; kind?: string } | null;
};
export type Entry =
  | MessageEntry
  | QueuedEntry
  | RunEndEntry
  | ApprovalRequestEntry
  | (EntryBase & { type: "dropped"; reason: string; items?: string[]; keys?: string[] })
  | (EntryBase & { type: "run_start"; agent: string; model: string; mode: string; resumes?: string | null })
  | (EntryBase & {
      type: "approval";
      approval_id: string;
      call_id: string;
      decision: Decision | "expired";
      reason?: string;
    })
  | SessionInfoEntry
  | (EntryBase & { type: "mode_change"; mode: string })
  | (EntryBase & { type: "model_change"; model: string })
  | (EntryBase & { type: "epoch"; worker?: string; attempt?: number })
  | (EntryBase & { type: "custom"; name?: string; data?: Json })
  | (EntryBase & { type: "deleted" });

export interface Delta {
  type: "text_delta" | "thinking_delta" | "tool_call_delta";
  index: number;
  text?: string;
  name?: string | null;
  call_id?: string | null;
}

/** Events that carry something the log does not: the rest repeats what an `entry` says. */
export type StreamEvent =
  | { type: "entry"; seq: number; entry: Omit<Entry, "seq"> & { seq?: number } }
  | { type: "turn_start"; run_id?: string; turn: number }
  | { type: "message_start"; run_id?: string; message_id: string; model: string }
  | { type: "message_update"; run_id?: string; message_id: string; n: number; delta: Delta }
  | { type: "tool_execution_start"; run_id?: string; call_id: string; name: string }
  | { type: "tool_execution_update"; run_id?: string; call_id: string; text: string; offset?: number }
  | { type: "retry"; run_id?: string; attempt: number; delay_s: number; error: string }
  | { type: "caught_up"; seq: number }
  | { type: "session_deleted" };

const LIVE = new Set<string>([
  "entry",
  "turn_start",
  "message_start",
  "message_update",
  "tool_execution_start",
  "tool_execution_update",
  "retry",
  "caught_up",
  "session_deleted",
]);

/** The event in `data`, or null for one that only repeats the log or that this version does not know. */
export function readEvent(data: string): StreamEvent | null {
  const event = JSON.parse(data) as { type?: unknown };
  return typeof event.type === "string" && LIVE.has(event.type) ? (event as StreamEvent) : null;
}
