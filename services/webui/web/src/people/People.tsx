import { useCallback, useEffect, useState } from "react";
import { wordsOf } from "../api/pages";
import { me } from "../api/rights";
import { useStore } from "../session/store";
import { listUsers } from "../sessions/sharing";
import { Button } from "../ui/Button";
import { Confirm } from "../ui/Confirm";
import { clock, plural } from "../ui/format";
import { Icon } from "../ui/Icon";
import { Menu } from "../ui/Menu";
import { Problem } from "../ui/Problem";
import { Spinner } from "../ui/Spinner";
import { complain } from "../ui/toast";
import { AddUser } from "./AddUser";
import { PairDevice } from "./PairDevice";
import { budgetText, type ListedUser, people, type Role, ROLES } from "./people";
import styles from "./People.module.css";
import { SetBudget } from "./SetBudget";
import { SetPassword } from "./SetPassword";

/** Who may log in, and as what. A change counts at once, for all tokens and logins. */
export function People() {
  const { users, problem, ask } = useUsers();
  const [adding, setAdding] = useState(false);
  const [invited, setInvited] = useState<string | null>(null);
  return (
    <section aria-labelledby="people">
      <div className={styles.head}>
        <h2 id="people">People</h2>
        <Button tone="primary" onClick={() => setAdding(true)}>
          Add a user
        </Button>
      </div>
      <p className={styles.about}>
        A change of a role counts at once, also in open pages. Logins and tokens that were made with fewer rights keep
        those: for more, log in again.
      </p>
      {problem && <Problem onAgain={ask}>The users could not be listed: {problem}</Problem>}
      {!users && !problem && <Spinner />}
      {users && (
        <ul className={styles.list} aria-label="Users">
          {users.map((user) => (
            <UserRow key={user.name} user={user} onChanged={ask} onInvite={() => setInvited(user.name)} />
          ))}
        </ul>
      )}
      {adding && (
        <AddUser
          onAdded={(name) => {
            setAdding(false);
            setInvited(name);
            ask();
          }}
          onClose={() => setAdding(false)}
        />
      )}
      {invited !== null && <PairDevice key={invited} user={invited} onClose={() => setInvited(null)} />}
    </section>
  );
}

function UserRow({ user, onChanged, onInvite }: { user: ListedUser; onChanged: () => void; onInvite: () => void }) {
  const [asks, setAsks] = useState<"remove" | "disable" | "demote" | "password" | "no password" | "budget" | null>(
    null,
  );
  const self = useStore(me, (who) => who?.account === user.name);
  const builtIn = user.name === "admin";
  const { name } = user;
  const act = (what: string, doing: Promise<unknown>): void =>
    void doing.catch((error: unknown) => complain(what, error)).finally(onChanged);
  const change = (role: Role): void => act(`Could not change the role of ${name}`, people.change(name, { role }));
  const [wish, setWish] = useState<Role>(user.role);
  return (
    <li className={user.disabled ? `${styles.row} ${styles.off}` : styles.row}>
      <Icon name="people" />
      <div className={styles.what}>
        <strong>{name}</strong>
        {self && <span className={styles.tag}>you</span>}
        {user.disabled && <span className={styles.tag}>disabled</span>}
        <p>
          {builtIn
            ? "The owner of the installation; cannot be changed"
            : `Since ${clock(user.created_at)}${user.created_by ? `, by ${user.created_by}` : ""}`}{" "}
          · {plural(user.tokens, "token")}
          {user.password && " · logs in with a password"}
          {budgetText(user) && ` · ${budgetText(user)}`}
        </p>
      </div>
      {builtIn ? (
        <span className={styles.role}>admin</span>
      ) : (
        <span className={styles.ways}>
          <select
            className={styles.role}
            aria-label={`Role of ${name}`}
            title={ROLES.find((one) => one.role === user.role)?.means}
            value={user.role}
            onChange={(event) => {
              const role = event.target.value as Role;
              if (self) {
                setWish(role);
                setAsks("demote");
              } else change(role);
            }}
          >
            {ROLES.map(({ role }) => (
              <option key={role} value={role}>
                {role}
              </option>
            ))}
          </select>
          <Menu
            label={`Actions for ${name}`}
            className={styles.dots}
            items={[
              ...(user.disabled ? [] : [{ label: "Invite: link to log in", onPick: onInvite }]),
              user.disabled
                ? {
                    label: "Enable",
                    onPick: () => act(`Could not enable ${name}`, people.change(name, { disabled: false })),
                  }
                : { label: "Disable", onPick: () => setAsks("disable") },
              { label: user.password ? "Change the password" : "Set a password", onPick: () => setAsks("password") },
              ...(user.password ? [{ label: "Take the password away", onPick: () => setAsks("no password") }] : []),
              { label: "Budget", onPick: () => setAsks("budget") },
              { label: "Remove", danger: true, onPick: () => setAsks("remove") },
            ]}
          >
            <Icon name="dots" />
          </Menu>
        </span>
      )}
      {asks === "demote" && (
        <Confirm
          title={`Change your own role to ${wish}?`}
          text="You can do no more than that from this moment on, and only another administrator can take it back."
          action="Change it"
          onYes={() => change(wish)}
          onClose={() => setAsks(null)}
        />
      )}
      {asks === "budget" && (
        <SetBudget
          user={user}
          onClose={() => {
            setAsks(null);
            onChanged();
          }}
        />
      )}
      {asks === "password" && (
        <SetPassword
          user={name}
          own={self}
          onClose={() => {
            setAsks(null);
            onChanged();
          }}
        />
      )}
      {asks === "no password" && (
        <Confirm
          title={`Take the password of ${name} away?`}
          text="Links, codes and tokens go on. All other logins of the user in browsers end."
          action="Take it away"
          onYes={() => act(`Could not take the password of ${name} away`, people.removePassword(name))}
          onClose={() => setAsks(null)}
        />
      )}
      {asks === "disable" && (
        <Confirm
          title={`Disable ${name}?`}
          text={`Everything that ${self ? "you ask" : `${name} asks`} for is refused at once, and what is open ends within seconds. Sessions stay, and so do tokens; enabling takes it back.`}
          action="Disable"
          onYes={() => act(`Could not disable ${name}`, people.change(name, { disabled: true }))}
          onClose={() => setAsks(null)}
        />
      )}
      {asks === "remove" && (
        <Confirm
          title={`Remove ${name}?`}
          text={`The user and ${plural(user.tokens, "token")} are gone at once. Sessions stay, for administrators.`}
          action="Remove"
          onYes={() => act(`Could not remove ${name}`, people.remove(name))}
          onClose={() => setAsks(null)}
        />
      )}
    </li>
  );
}

function useUsers(): { users: readonly ListedUser[] | null; problem: string; ask: () => void } {
  const [users, setUsers] = useState<readonly ListedUser[] | null>(null);
  const [problem, setProblem] = useState("");
  const ask = useCallback((): void => {
    listUsers().then(
      (found) => {
        setUsers(found);
        setProblem("");
      },
      (error: unknown) => setProblem(wordsOf(error)),
    );
  }, []);
  useEffect(ask, [ask]);
  return { users, problem, ask };
}
