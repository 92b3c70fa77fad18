// Time ranges: zooming, moving, links to ranges, and formatting of times.

export interface Range {
  from: number;
  to: number;
}

/** Length of the shortest range that can be shown, in ns. */
export const SHORTEST = 1_000;

/**
 * Returns `range`, moved into `whole` and shortened or lengthened to a length that can be shown.
 */
export function within(whole: Range, range: Range): Range {
  const most = whole.to - whole.from;
  const length = Math.min(most, Math.max(Math.min(SHORTEST, most), range.to - range.from));
  const middle = (range.from + range.to) / 2;
  const short = range.to - range.from < length;
  const from = Math.min(whole.to - length, Math.max(whole.from, short ? middle - length / 2 : range.from));
  return { from, to: from + length };
}

/**
 * Returns a range that is `factor` times as long. The time `at` keeps its relative position, as far
 * as the limits of `whole` allow.
 */
export function zoom(whole: Range, range: Range, at: number, factor: number): Range {
  const length = Math.min(whole.to - whole.from, Math.max(SHORTEST, (range.to - range.from) * factor));
  const share = (at - range.from) / (range.to - range.from);
  const from = at - share * length;
  return within(whole, { from, to: from + length });
}

/** Returns `range`, moved by a time but not beyond the ends of `whole`. */
export function pan(whole: Range, range: Range, by: number): Range {
  const length = range.to - range.from;
  const from = Math.min(whole.to - length, Math.max(whole.from, range.from + by));
  return { from, to: from + length };
}

/**
 * Parses a link to a range: `#timeline=FROM,TO` or `#timeline=FROM,TO,CPU`, with times in ns.
 * Returns null for any other link.
 */
export function ofHash(hash: string): (Range & { cpu: number | null }) | null {
  const found = /^#timeline=(-?\d{1,18}),(-?\d{1,18})(?:,(\d{1,6}))?$/.exec(hash);
  if (!found) return null;
  const [from, to] = [Number(found[1]), Number(found[2])];
  return from < to ? { from, to, cpu: found[3] === undefined ? null : Number(found[3]) } : null;
}

/** Returns a link to a range. */
export function toHash(range: Range, cpu: number | null): string {
  return `#timeline=${Math.round(range.from)},${Math.round(range.to)}${cpu === null ? "" : `,${cpu}`}`;
}

const UNITS: [string, number][] = [
  ["s", 1e9],
  ["ms", 1e6],
  ["µs", 1e3],
  ["ns", 1],
];

/** Formats a duration with three significant digits, in the style of the page. */
export function length(ns: number): string {
  const size = Math.abs(ns);
  const [unit, scale] = UNITS.find(([, scale]) => size >= scale) ?? ["ns", 1];
  const value = ns / scale;
  const digits = unit === "ns" ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value) || 1)));
  return `${value.toFixed(digits)}\u00a0${unit}`;
}

/**
 * Formats a time, with enough digits to distinguish both ends of a range whose length is `range`.
 */
export function point(ns: number, range: number): string {
  const digits = Math.min(9, Math.max(3, Math.ceil(9 - Math.log10(Math.max(1, range))) + 3));
  return `${(ns / 1e9).toFixed(digits)}\u00a0s`;
}

/** Returns about `count` round times within a range, and the distance between them. */
export function ticks(range: Range, count: number): { step: number; at: number[] } {
  const raw = (range.to - range.from) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(1, power * ([1, 2, 5, 10].find((it) => it * power >= raw) ?? 10));
  const at = [];
  for (let i = Math.ceil(range.from / step); i * step <= range.to; i++) at.push(i * step);
  return { step, at };
}

/** Formats the time of a tick, with as many digits as the step needs. */
export function tick(at: number, step: number): string {
  const digits = Math.min(9, Math.max(0, 9 - Math.floor(Math.log10(step))));
  return (at / 1e9).toFixed(digits);
}
