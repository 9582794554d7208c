import { useEffect, useState } from "react";
import { api, ApiError, onForbidden, onSignedOut } from "./api/client";
import { onNews } from "./api/news";
import { onOtherTab, takeLogin } from "./api/page";
import { setMe } from "./api/rights";
import { Login } from "./login/Login";
import { Shell } from "./Shell";
import { OfflineBanner } from "./ui/OfflineBanner";
import { Toasts } from "./ui/toast";

type Access = "asking" | "out" | "in";

const AGAIN_MS = 1500;
const SOON_MS = 300; // several refusals at once are one question
const login = takeLogin(); // before anything is asked: the address is the first place it must not stay in

/** The application for who may use it, the login page for the rest. */
export function App() {
  const [access, setAccess] = useState<Access>("asking");
  const [attempt, setAttempt] = useState(0);

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let gone = false;
    login.then(api.me).then(
      (found) => {
        if (gone) return;
        setMe(found);
        setAccess("in");
      },
      (error: unknown) => {
        if (gone) return;
        // A login without the right to read can do nothing here; another one can be used instead.
        if (error instanceof ApiError && (error.status === 401 || error.status === 403)) setAccess("out");
        else timer = setTimeout(() => setAttempt((n) => n + 1), AGAIN_MS);
      },
    );
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [attempt]);

  useEffect(() => onSignedOut(() => setAccess("out")), []);
  useEffect(() => onOtherTab(() => setAttempt((n) => n + 1)), []);
  const isIn = access === "in";
  useEffect(() => (isIn ? watchRights() : undefined), [isIn]);

  return (
    <>
      {!isIn && <OfflineBanner />}
      {access === "out" && <Login onDone={() => setAttempt((n) => n + 1)} />}
      {isIn && <Shell />}
      <Toasts />
    </>
  );
}

/** Asks again what this login may do: when something is refused, and when the stream of news begins anew, as it does after a change. */
function watchRights(): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const ask = (): void => {
    timer ??= setTimeout(() => {
      timer = undefined;
      api.me().then(setMe, () => undefined); // signed out is told to all; the rest is no news
    }, SOON_MS);
  };
  const forget = [onNews("rights", ask), onForbidden(ask)];
  return () => {
    clearTimeout(timer);
    for (const each of forget) each();
  };
}
