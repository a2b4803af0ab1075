// How numbers, times and Spaces are written.
export const GRAVITY = ["fail", "warn", "unknown", "ok"];
export const MARKS = { fail: "✕", warn: "!", unknown: "?", ok: "✓" };
export const MEANINGS = {
  fail: "something is wrong",
  warn: "worth a look",
  unknown: "too little to see",
  ok: "nothing is wrong",
};

export function worst(counts) {
  return GRAVITY.find((status) => counts[status]) || "unknown";
}

export function number(value, unit = "") {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  let text;
  if (value !== 0 && (size < 1e-3 || size >= 1e7)) text = value.toExponential(2).replace("e+", "e");
  else if (Number.isInteger(value)) text = value.toLocaleString("en");
  else text = Number(value.toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 });
  return unit ? `${text} ${size === 1 ? unit.replace(/s$/, "") : unit}` : text;
}

export const count = (value, one, many = `${one}s`) => `${value.toLocaleString("en")} ${value === 1 ? one : many}`;

export const nameOf = (space) => `${space.model} / ${space.place}`;

export function segmentOf(space) {
  const parts = space.segment === "all" ? [] : [`segment ${space.segment}`];
  return [...parts, ...(space.head === undefined ? [] : [`head ${space.head}`])].join(", ");
}

export const fullName = (space) => [nameOf(space), segmentOf(space)].filter(Boolean).join(", ");

export const keyOf = (space) => JSON.stringify([space.model, space.place, space.segment, space.head]);

export function hashOf(space) {
  return `#/space?${new URLSearchParams(Object.entries(space).filter(([, value]) => value !== undefined))}`;
}

const pad = (value) => String(value).padStart(2, "0");

export function clock(seconds) {
  const time = new Date(seconds * 1000);
  const hour = `${pad(time.getHours())}:${pad(time.getMinutes())}`;
  if (time.toDateString() === new Date().toDateString()) return hour;
  return `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())} ${hour}`;
}

export function duration(seconds) {
  if (seconds < 120) return `${number(seconds)} s`;
  return seconds < 7200 ? `${number(seconds / 60)} min` : `${number(seconds / 3600)} h`;
}

export function ago(seconds, now) {
  const passed = Math.max(0, now - seconds);
  if (passed < 5) return "just now";
  if (passed < 90) return `${Math.round(passed)} s ago`;
  if (passed < 5400) return `${Math.round(passed / 60)} min ago`;
  if (passed < 129_600) return `${Math.round(passed / 3600)} h ago`;
  return `${Math.round(passed / 86_400)} d ago`;
}
