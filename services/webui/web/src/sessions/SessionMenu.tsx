import { useState } from "react";
import type { Rights } from "../api/rights";
import { Confirm } from "../ui/Confirm";
import { Icon } from "../ui/Icon";
import { Menu, type MenuItem } from "../ui/Menu";
import { archiveSession, deleteSession, pinSession } from "./actions";
import { CompactSession } from "./CompactSession";
import { openSettings } from "./settings";
import { openSharing } from "./sharing";

/** What can be done with one session, wherever it is shown. */
export function SessionMenu({
  id,
  name,
  label,
  className,
  pinned = false,
  archived = false,
  rights,
  onRename,
  canCompact = false,
}: {
  id: string;
  name: string;
  label: string;
  className: string | undefined;
  pinned?: boolean | undefined;
  archived?: boolean | undefined;
  rights: Rights;
  onRename: () => void;
  /** Offers to summarise earlier messages, which makes sense where they are shown. */
  canCompact?: boolean;
}) {
  const [deleting, setDeleting] = useState(false);
  const [compacting, setCompacting] = useState(false);
  const items: MenuItem[] = [];
  if (rights.write) {
    items.push(
      { label: "Rename", onPick: onRename },
      { label: pinned ? "Unpin" : "Pin", onPick: () => pinSession(id, !pinned) },
      { label: archived ? "Take out of the archive" : "Archive", onPick: () => archiveSession(id, !archived) },
    );
    if (canCompact)
      items.push({
        label: "Summarise earlier messages…",
        hint: "for the model; you still see them",
        onPick: () => setCompacting(true),
      });
    items.push({ label: "Settings", onPick: () => openSettings(id) });
  }
  if (rights.manage) items.push({ label: "Share…", onPick: () => openSharing(id) });
  if (rights.manage) items.push({ label: "Delete", danger: true, onPick: () => setDeleting(true) });
  if (items.length === 0) return null;
  return (
    <>
      <Menu label={label} className={className} items={items}>
        <Icon name="dots" />
      </Menu>
      {compacting && <CompactSession id={id} onClose={() => setCompacting(false)} />}
      {deleting && (
        <Confirm
          title="Delete this session?"
          text={`“${name}” and everything said in it will be gone. Files in its workspace stay.`}
          action="Delete"
          onYes={() => deleteSession(id)}
          onClose={() => setDeleting(false)}
        />
      )}
    </>
  );
}
