/** A box for a new name; null: it stays as it was. */
export function RenameBox({
  name,
  className,
  onDone,
}: {
  name: string;
  className: string | undefined;
  onDone: (title: string | null) => void;
}) {
  const done = (said: string): void => {
    const title = said.trim();
    onDone(title && title !== name ? title : null);
  };
  return (
    <input
      className={className}
      aria-label="Name of the session"
      defaultValue={name}
      autoFocus
      maxLength={200}
      onFocus={(event) => event.target.select()}
      onBlur={(event) => done(event.target.value)}
      onKeyDown={(event) => {
        if (event.key === "Enter") event.currentTarget.blur();
        if (event.key !== "Escape") return;
        event.preventDefault();
        event.stopPropagation();
        onDone(null);
      }}
    />
  );
}
