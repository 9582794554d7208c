import { api, ApiError } from "../api/client";
import { navigate } from "../routes";
import { forgetLiveSession, liveSession } from "../session/open";
import { complain } from "../ui/toast";
import { newKey } from "../session/outbox";
import {
  archivedOnly,
  forgetSession,
  leaveOut,
  patchSession,
  refreshSessions,
  refreshSoon,
  rememberSession,
} from "./list";

export function renameSession(id: string, title: string): void {
  patchSession(id, { title });
  api.updateSession(id, { title }).catch((error: unknown) => {
    complain("Could not rename", error);
    void refreshSessions();
  });
}

export function pinSession(id: string, pinned: boolean): void {
  patchSession(id, { pinned });
  api.updateSession(id, { pinned }).then(refreshSoon, (error: unknown) => {
    complain(pinned ? "Could not pin" : "Could not unpin", error);
    void refreshSessions();
  });
}

/** Leaves it out of lists, or takes it back. What runs in it goes on. */
export function archiveSession(id: string, archived: boolean): void {
  patchSession(id, { archived });
  if (archived !== archivedOnly.get()) leaveOut(id);
  api.updateSession(id, { archived }).then(
    () => {
      liveSession(id).refresh();
      refreshSoon();
    },
    (error: unknown) => {
      complain("Could not change the archive", error);
      void refreshSessions();
    },
  );
}

/** Has earlier messages summarised for the model. The log tells how that ends, and why if it is not done. */
export function compactSession(id: string, instructions = ""): void {
  api.compact(id, { key: newKey(), ...(instructions && { instructions }) }).catch((error: unknown) => {
    if (error instanceof ApiError && error.status === 409 && !error.field) return;
    complain("Could not summarise earlier messages", error);
  });
}

export function deleteSession(id: string): void {
  if (location.pathname.endsWith(`/${id}`)) navigate("/", { replace: true });
  forgetSession(id);
  api.deleteSession(id).then(
    () => forgetLiveSession(id),
    (error: unknown) => {
      complain("Could not delete", error);
      rememberSession(id);
    },
  );
}

export function changeMode(id: string, mode: string): void {
  patchSession(id, { mode });
  api.updateSession(id, { mode }).catch((error: unknown) => complain("Could not change the mode", error));
}

export function changeModel(id: string, model: string): void {
  api.updateSession(id, { model }).catch((error: unknown) => complain("Could not change the model", error));
}

/** How hard the model thinks in this session; empty: as its agent has it. */
export function changeThinking(id: string, thinking: string, onRefused: () => void): void {
  api.updateSession(id, { thinking }).then(
    () => liveSession(id).refresh(),
    (error: unknown) => {
      onRefused();
      complain("Could not change how hard it thinks", error);
    },
  );
}

export function stopRun(id: string): void {
  liveSession(id)
    .stop()
    .catch((error: unknown) => complain("Could not stop", error));
}
