import { ago, clock } from "../ui/format";
import { useNow } from "../ui/useNow";
import styles from "./Executors.module.css";
import type { Service } from "./hosts";

/** Every service with how many answer; one of Fairlead's own that is silent stands out. */
export function Services({ services }: { services: readonly Service[] }) {
  const now = useNow(true, 30_000);
  return (
    <section className={styles.host} aria-label="Services">
      <header className={styles.head}>
        <h2>Services</h2>
      </header>
      <table className={styles.services}>
        <thead className="visually-hidden">
          <tr>
            <th>Name</th>
            <th>Instances</th>
            <th>Version</th>
            <th>Since</th>
          </tr>
        </thead>
        <tbody>
          {services.map((service) => (
            <tr key={service.name}>
              <th scope="row">{service.name}</th>
              <td className={service.instances === 0 ? styles.silent : undefined}>
                {service.instances === 0
                  ? "does not answer"
                  : service.instances === 1
                    ? "1 instance"
                    : `${service.instances} instances`}
              </td>
              <td>{service.versions.join(", ")}</td>
              <td title={service.since === null ? undefined : clock(service.since)}>
                {service.since === null ? "" : upFor(service.since, now)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

const DAY_MS = 86_400_000;

function upFor(since: number, now: number): string {
  if (now - since < 60_000) return "just started";
  return now - since < DAY_MS ? `up ${ago(since, now)}` : `since ${ago(since, now)}`;
}
