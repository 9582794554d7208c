import { api } from "../api/client";
import { navigate } from "../routes";
import { forgetLiveSession, liveSession } from "../session/open";
import { complain } from "../ui/toast";
import { forgetSession, patchSession, refreshSessions, rememberSession } from "./list";

export function renameSession(id: string, title: string): void {
  patchSession(id, { title });
  api.updateSession(id, { title }).catch((error: unknown) => {
    complain("Could not rename", error);
    void refreshSessions();
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

export function stopRun(id: string): void {
  liveSession(id)
    .stop()
    .catch((error: unknown) => complain("Could not stop", error));
}
