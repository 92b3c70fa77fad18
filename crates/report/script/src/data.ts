// What a timeline is made of. All times are ns since the recording began.

import { Numbers } from "./numbers";

/** What the page says before the numbers. */
export interface Meta {
  from: number;
  to: number;
  columns: { begin: number; width: number; count: number };
  classes: Class[];
  /** A name, and the place of its class. */
  sources: [string, number][];
  cpus: { cpu: number; spans: number }[];
  lanes: { name: string; waits: number }[];
  reasons: string[];
  wakeups: number;
  marks: Mark[];
  /** Spans that are shorter are in the columns alone. */
  floor: number;
}

/** What is drawn alike. */
export interface Class {
  name: string;
  /** From below: threads, softirqs, interrupts, what lies across these. */
  lane: number;
  look: string;
}

/** A place that the page speaks of. */
export interface Mark {
  at: number;
  length: number;
  cpu: number | null;
  name: string;
}

/** Intervals by when they began. */
export interface Intervals {
  start: Float64Array;
  dur: Float64Array;
  /** The latest end of this and all before it. */
  reach: Float64Array;
}

/** The spans of a CPU: what is outside comes before what is within. */
export interface Spans extends Intervals {
  own: Float64Array;
  source: Uint32Array;
}

/** What a thread waited for. */
export interface Waits extends Intervals {
  name: string;
  reason: Uint32Array;
}

/** Sums by column and class, and behind the classes how many spans began; each level has columns twice as wide. */
export interface Cpu extends Spans {
  cpu: number;
  levels: Float64Array[];
}

/** Runs of threads and what woke them, by when they ran. */
export interface WakeUps {
  ran: Float64Array;
  latency: Float64Array;
  by: Uint32Array;
  source: Uint32Array;
  /** Places of CPUs. */
  from: Uint32Array;
  to: Uint32Array;
}

export interface Timeline {
  meta: Meta;
  cpus: Cpu[];
  lanes: Waits[];
  wakeups: WakeUps;
}

/** The latest end of each interval and all before it. */
export function reach(start: Float64Array, dur: Float64Array): Float64Array {
  const all = new Float64Array(start.length);
  let latest = -Infinity;
  for (let i = 0; i < all.length; i++) {
    latest = Math.max(latest, start[i]! + dur[i]!);
    all[i] = latest;
  }
  return all;
}

/** Sums of twice as wide columns, until one is left. */
export function levels(sums: Float64Array, stride: number): Float64Array[] {
  const all = [sums];
  for (let last = sums; last.length > stride; ) {
    const count = Math.ceil(last.length / stride / 2);
    const next = new Float64Array(count * stride);
    for (let column = 0; column < last.length / stride; column++) {
      for (let c = 0; c < stride; c++) next[(column >> 1) * stride + c]! += last[column * stride + c]!;
    }
    all.push(next);
    last = next;
  }
  return all;
}

/** Reads the numbers in the order in which the export writes them. */
export function read(meta: Meta, bytes: Uint8Array): Timeline {
  const numbers = new Numbers(bytes);
  const stride = meta.classes.length + 1;
  const sums = meta.cpus.map(() => {
    const table = new Float64Array(meta.columns.count * stride);
    for (let c = 0; c < stride; c++) {
      for (let column = 0; column < meta.columns.count; column++) table[column * stride + c] = numbers.next();
    }
    return levels(table, stride);
  });
  const cpus = meta.cpus.map(({ cpu, spans }, place): Cpu => {
    const start = numbers.steps(spans);
    const dur = numbers.signeds(spans);
    const own = numbers.signeds(spans);
    for (let i = 0; i < spans; i++) own[i] = dur[i]! - own[i]!;
    const source = numbers.places(spans);
    return { cpu, levels: sums[place]!, start, dur, own, source, reach: reach(start, dur) };
  });
  const lanes = meta.lanes.map(({ name, waits }): Waits => {
    const start = numbers.steps(waits);
    const dur = numbers.signeds(waits);
    return { name, start, dur, reason: numbers.places(waits), reach: reach(start, dur) };
  });
  const n = meta.wakeups;
  const wakeups: WakeUps = {
    ran: numbers.steps(n),
    latency: numbers.signeds(n),
    by: numbers.places(n),
    source: numbers.places(n),
    from: numbers.places(n),
    to: numbers.places(n),
  };
  return { meta, cpus, lanes, wakeups };
}

/** The first place whose value is above `value`; values only grow. */
export function firstAbove(values: Float64Array, value: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** The places between which all intervals lie that have a part between two times. */
export function between(intervals: Intervals, from: number, to: number): [number, number] {
  return [firstAbove(intervals.reach, from), firstAbove(intervals.start, to)];
}

/** The sums of a CPU between two times, by class, from whole columns that begin there; and the time that these cover. */
export function sums(timeline: Timeline, cpu: Cpu, from: number, to: number): { by: Float64Array; length: number } {
  const { columns, classes } = timeline.meta;
  const stride = classes.length + 1;
  const by = new Float64Array(stride);
  const first = Math.max(0, Math.floor((from - columns.begin) / columns.width));
  const last = Math.min(columns.count, Math.max(first + 1, Math.ceil((to - columns.begin) / columns.width)));
  const table = cpu.levels[0]!;
  for (let column = first; column < last; column++) {
    for (let c = 0; c < stride; c++) by[c]! += table[column * stride + c]!;
  }
  return { by, length: (last - first) * columns.width };
}

/** The innermost span of a CPU at a time that is drawn in `lane`, or within `near` of it; -1 where there is none. */
export function spanAt(timeline: Timeline, cpu: Cpu, lane: number, at: number, near: number): number {
  const { classes, sources } = timeline.meta;
  const [first, last] = between(cpu, at - near, at + near);
  let found = -1;
  let distance = Infinity;
  for (let i = first; i < last; i++) {
    const start = cpu.start[i]!;
    const end = start + cpu.dur[i]!;
    if (end <= at - near || classes[sources[cpu.source[i]!]![1]]!.lane !== lane) continue;
    const away = at < start ? start - at : at >= end ? at - end + 1e-9 : 0;
    // Of several at the time, the innermost comes last.
    if (away <= distance) {
      found = i;
      distance = away;
    }
  }
  return found;
}

/** What woke the thread that began to run on a CPU at a time; -1 where it is not known. */
export function wakeUpOf(timeline: Timeline, place: number, source: number, start: number): number {
  const { ran, to, source: of } = timeline.wakeups;
  for (let i = firstAbove(ran, start) - 1; i >= 0 && ran[i] === start; i--) {
    if (to[i] === place && of[i] === source) return i;
  }
  return -1;
}
