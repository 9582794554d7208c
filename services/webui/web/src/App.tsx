import { useEffect, useState } from "react";
import { api, ApiError, onSignedOut } from "./api/client";
import { onOtherTab, takeLogin } from "./api/page";
import type { Me } from "./api/types";
import { Login } from "./login/Login";
import { Shell } from "./Shell";
import { OfflineBanner } from "./ui/OfflineBanner";
import { Toasts } from "./ui/toast";

type Access = { state: "asking" } | { state: "out" } | { state: "in"; me: Me };

const login = takeLogin(); // before anything is asked: the address is the first place it must not stay in

/** The application for who may use it, the login page for the rest. */
export function App() {
  const [access, setAccess] = useState<Access>({ state: "asking" });
  const [attempt, setAttempt] = useState(0);

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let gone = false;
    login.then(api.me).then(
      (me) => !gone && setAccess({ state: "in", me }),
      (error: unknown) => {
        if (gone) return;
        if (error instanceof ApiError && error.status === 401) setAccess({ state: "out" });
        else timer = setTimeout(() => setAttempt((n) => n + 1), 1500);
      },
    );
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [attempt]);

  useEffect(() => onSignedOut(() => setAccess({ state: "out" })), []);
  useEffect(() => onOtherTab(() => setAttempt((n) => n + 1)), []);

  return (
    <>
      {access.state !== "in" && <OfflineBanner />}
      {access.state === "out" && <Login onDone={() => setAttempt((n) => n + 1)} />}
      {access.state === "in" && <Shell me={access.me} />}
      <Toasts />
    </>
  );
}
