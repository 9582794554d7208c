import { type MouseEvent, type ReactNode, useEffect, useRef, useState } from "react";
import { readObject } from "../api/client";
import { complain } from "./toast";

interface StoredImageProps {
  object: string;
  alt: string;
  className?: string | undefined;
}

const DOWNLOAD_MS = 600_000;

/** A stored picture. It is fetched once it comes near the part of the page that is looked at. */
export function StoredImage({ object, alt, className }: StoredImageProps) {
  const place = useRef<HTMLImageElement>(null);
  const [url, setUrl] = useState<string>();

  useEffect(() => {
    const image = place.current;
    if (!image) return undefined;
    const stop = new AbortController();
    let made = "";
    const load = async (): Promise<void> => {
      try {
        const bytes = await readObject(object, stop.signal);
        if (stop.signal.aborted) return;
        made = URL.createObjectURL(bytes);
        setUrl(made);
      } catch {
        // It stays away, with its words for those who cannot see it; the rest of the page is worth more.
      }
    };
    const watch = new IntersectionObserver(
      (seen) => {
        if (!seen.some((each) => each.isIntersecting)) return;
        watch.disconnect();
        void load();
      },
      { rootMargin: "600px" },
    );
    watch.observe(image);
    return () => {
      watch.disconnect();
      stop.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [object]);

  return <img ref={place} src={url} alt={alt} className={className} />;
}

/** A link that saves a stored object as a file, under its own name or another. */
export function StoredFile({
  object,
  name = object,
  className,
  children,
}: {
  object: string;
  name?: string;
  className?: string | undefined;
  children: ReactNode;
}) {
  const [busy, setBusy] = useState(false);
  const save = async (event: MouseEvent): Promise<void> => {
    event.preventDefault();
    if (busy) return;
    setBusy(true);
    try {
      const url = URL.createObjectURL(await readObject(object, AbortSignal.timeout(DOWNLOAD_MS)));
      const link = document.createElement("a");
      link.href = url;
      link.download = name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser may still be reading it
    } catch (error) {
      complain("Could not download", error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <a href={`#${object}`} onClick={(event) => void save(event)} className={className} aria-busy={busy}>
      {children}
    </a>
  );
}
