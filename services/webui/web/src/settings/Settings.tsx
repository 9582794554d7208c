import { lazy, Suspense, useEffect, useRef } from "react";
import { useIsAdmin } from "../api/rights";
import { PageHead } from "../chat/PageHead";
import { Link } from "../routes";
import { Guard } from "../ui/Guard";
import { Credentials } from "./Credentials";
import styles from "./Settings.module.css";

const People = lazy(() => import("../people/People").then((m) => ({ default: m.People })));
const MyAccess = lazy(() => import("../people/MyAccess").then((m) => ({ default: m.MyAccess })));
const Audit = lazy(() => import("../audit/Audit").then((m) => ({ default: m.Audit })));
const DeadLetters = lazy(() => import("../dead/DeadLetters").then((m) => ({ default: m.DeadLetters })));
const Storage = lazy(() => import("./Storage").then((m) => ({ default: m.Storage })));

const SECTIONS = [
  { name: "credentials", label: "Credentials", admin: true },
  { name: "people", label: "People", admin: true },
  { name: "access", label: "My access", admin: false },
  { name: "audit", label: "Audit log", admin: true },
  { name: "dead", label: "Dead letters", admin: true },
  { name: "storage", label: "Storage", admin: true },
] as const;

/** What holds for all sessions, and who may do what. Most of it is for administrators. */
export function Settings({ section, onMenu }: { section: string; onMenu: () => void }) {
  const admin = useIsAdmin();
  const offered = SECTIONS.filter((one) => admin || !one.admin);
  const asked = SECTIONS.find((one) => one.name === section);
  const shown = section === "" ? offered[0] : offered.find((one) => one === asked);
  const tabs = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a phone the row is wider than the screen.
    tabs.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [shown]);
  return (
    <>
      <PageHead title="Settings" onMenu={onMenu} />
      <div className={styles.page}>
        <div className={styles.column}>
          {offered.length > 1 && (
            <nav ref={tabs} className={styles.sections} aria-label="Settings">
              {offered.map((one) => (
                <Link key={one.name} to={`/settings/${one.name}`} aria-current={one === shown ? "page" : undefined}>
                  {one.label}
                </Link>
              ))}
            </nav>
          )}
          {!shown && (
            <p className={styles.none} role="alert">
              {asked
                ? `“${asked.label}” is for administrators, and this login has not all rights of one.`
                : "There are no settings at this address."}
            </p>
          )}
          <Guard key={shown?.name ?? ""}>
            <Suspense>
              {shown?.name === "credentials" && <Credentials mayChange />}
              {shown?.name === "people" && <People />}
              {shown?.name === "access" && <MyAccess />}
              {shown?.name === "audit" && <Audit />}
              {shown?.name === "dead" && <DeadLetters />}
              {shown?.name === "storage" && <Storage />}
            </Suspense>
          </Guard>
        </div>
      </div>
    </>
  );
}
