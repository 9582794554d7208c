import { Component, type ReactNode } from "react";
import { Button } from "./Button";
import styles from "./Guard.module.css";

/** Says so where a page cannot be drawn, or its files not be had (a newer version was installed meanwhile). */
export class Guard extends Component<{ children: ReactNode }, { problem: string | null }> {
  override state: { problem: string | null } = { problem: null };

  static getDerivedStateFromError(error: unknown): { problem: string } {
    return { problem: error instanceof Error ? error.message : String(error) };
  }

  override render(): ReactNode {
    if (this.state.problem === null) return this.props.children;
    return (
      <div className={styles.broken} role="alert">
        <p>This page could not be shown. Nothing is lost: Fairlead keeps everything. Reload the page.</p>
        <code>{this.state.problem}</code>
        <Button tone="primary" onClick={() => location.reload()}>
          Reload
        </Button>
      </div>
    );
  }
}
