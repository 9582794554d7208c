// Drawn on a grid of 16, one stroke.
const PATHS = {
  plus: "M8 3v10M3 8h10",
  search: "M7 12a5 5 0 1 1 0-10 5 5 0 0 1 0 10zM10.700 10.700 14 14",
  check: "m3 8.500 3.500 3.500L13 4.500",
  cross: "m4 4 8 8M12 4l-8 8",
  copy: "M6 5.500h6.500a1 1 0 0 1 1 1V13a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1V6.500a1 1 0 0 1 1-1zM3 10.500h-.500v-8h8V3",
  chevron: "m6 4 4 4-4 4",
  back: "m10 4-4 4 4 4",
  again: "M13 3v3.500H9.500M12.700 6.500A5 5 0 1 0 13 9.500",
  fork: "M5 5.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3zM11 5.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3zM5 13.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3zM5 5.500v5M11 5.500V7a2 2 0 0 1-2 2H7a2 2 0 0 0-2 1.500",
  pin: "M6 2.500h4l-.500 4 2.500 2.500H4l2.500-2.500zM8 9v4.500",
  archive: "M2.500 3h11v3h-11zM3.500 6v7h9V6M6.500 8.500h3",
  down: "m4 6 4 4 4-4",
  arrowDown: "M8 3v10M4 9l4 4 4-4",
  send: "M8 13V3M4 7l4-4 4 4",
  stop: "M4.500 4.500h7v7h-7z",
  menu: "M2.500 4.500h11M2.500 8h11M2.500 11.500h11",
  dots: "M3.500 8h.010M8 8h.010M12.500 8h.010",
  shield: "M8 2 3 4v4c0 3 2.200 5 5 6 2.800-1 5-3 5-6V4z",
  clock: "M8 14A6 6 0 1 1 8 2a6 6 0 0 1 0 12zM8 5v3l2 1.500",
  slash: "M8 14A6 6 0 1 1 8 2a6 6 0 0 1 0 12zM4 4l8 8",
  question:
    "M8 14A6 6 0 1 1 8 2a6 6 0 0 1 0 12zM6.300 6.400a1.700 1.700 0 1 1 2.500 1.500c-.500.300-.800.600-.800 1.200M8 11.200v.010",
  skip: "m4 4 5 4-5 4zM12 4v8",
  sun: "M8 11a3 3 0 1 1 0-6 3 3 0 0 1 0 6zM8 1.500V3M8 13v1.500M1.500 8H3M13 8h1.500M3.400 3.400l1 1M11.600 11.600l1 1M12.600 3.400l-1 1M4.400 11.600l-1 1",
  moon: "M13 9.500A5.500 5.500 0 0 1 6.500 3 5.500 5.500 0 1 0 13 9.500z",
  auto: "M8 14A6 6 0 1 1 8 2a6 6 0 0 1 0 12zM8 2v12M10 3v10M12 4.500v7",
  clip: "m12.500 7-5 5a3 3 0 0 1-4.200-4.200l5.500-5.500a2 2 0 0 1 2.800 2.800l-5.300 5.300a1 1 0 0 1-1.400-1.400L9.500 4.500",
  download: "M8 2.500v7M5 7l3 3 3-3M3 13h10",
  pencil: "m3 13 .700-2.800L10.800 3l2.200 2.200-7.200 7.100z",
  trash: "M3 4.500h10M6.500 4.500v-2h3v2M4.500 4.500l.500 9h6l.500-9",
  box: "M8 2 13.500 5v6L8 14l-5.500-3V5zM2.500 5 8 8l5.500-3M8 8v6",
  server:
    "M3.500 2.500h9a1 1 0 0 1 1 1V6a1 1 0 0 1-1 1h-9a1 1 0 0 1-1-1V3.500a1 1 0 0 1 1-1zM3.500 9h9a1 1 0 0 1 1 1v2.500a1 1 0 0 1-1 1h-9a1 1 0 0 1-1-1V10a1 1 0 0 1 1-1zM5 4.750h.010M5 11.250h.010",
  warning: "M8 2.500 14 13H2zM8 6.500v3M8 11.300v.010",
  exit: "M6.500 3h-3v10h3M7 8h7M11 5l3 3-3 3",
} as const;

export type IconName = keyof typeof PATHS;

/** A small picture; what it means must be said beside it. */
export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth={name === "dots" ? 2.2 : 1.4}
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
