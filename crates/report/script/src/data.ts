// Data of a timeline, and queries on it. All times are in ns since the start of the recording.

import { Numbers } from "./numbers";

/** Metadata for decoding the numbers. `Meta` in timeline/section.rs writes it. */
export interface Meta {
  from: number;
  to: number;
  columns: { begin: number; width: number; count: number };
  classes: Class[];
  /** Name of each source, and the index of its class. */
  sources: [string, number][];
  cpus: { cpu: number; spans: number }[];
  lanes: { name: string; waits: number }[];
  reasons: string[];
  wakeups: number;
  marks: Mark[];
  /** Length of the shortest spans that are kept. Shorter spans appear only in the columns. */
  floor: number;
}

/** A class of sources that are drawn alike. */
export interface Class {
  name: string;
  /**
   * Lane within the CPU's row, counted from the bottom: 0 for threads, 1 for softirqs, 2 for
   * interrupts, 3 for time that lies across these lanes.
   */
  lane: number;
  /** Name of the class's colour and pattern. */
  look: string;
}

/** A moment that the page links to. */
export interface Mark {
  at: number;
  length: number;
  cpu: number | null;
  name: string;
}

/** Intervals, sorted by start. */
export interface Intervals {
  start: Float64Array;
  dur: Float64Array;
  /** For each interval, the latest end of this interval and all intervals before it. */
  reach: Float64Array;
}

/** Spans of a CPU. Each span comes before the spans that are nested in it. */
export interface Spans extends Intervals {
  /** Time without interruptions. */
  own: Float64Array;
  /** Indices in `Meta.sources`. */
  source: Uint32Array;
}

/** Waits of a thread. */
export interface Waits extends Intervals {
  name: string;
  /** Indices in `Meta.reasons`. */
  reason: Uint32Array;
}

/** Spans and sums of a CPU. */
export interface Cpu extends Spans {
  cpu: number;
  /**
   * Sums at several resolutions. The columns of each level are twice as wide as those of the level
   * before. Each column contains the time of each class, then the number of spans that start in it.
   */
  levels: Float64Array[];
}

/** Runs of threads and the sources that woke these threads, sorted by the start of the run. */
export interface WakeUps {
  /** Start of the run. */
  ran: Float64Array;
  /** Time from the wake-up to the start of the run. */
  latency: Float64Array;
  /** Indices in `Meta.sources`, of the source that woke the thread and of the thread itself. */
  by: Uint32Array;
  source: Uint32Array;
  /** Indices in `Timeline.cpus`, of the CPUs where the thread was woken and where it ran. */
  from: Uint32Array;
  to: Uint32Array;
}

export interface Timeline {
  meta: Meta;
  cpus: Cpu[];
  lanes: Waits[];
  wakeups: WakeUps;
}

/** Returns, for each interval, the latest end of this interval and all intervals before it. */
export function reach(start: Float64Array, dur: Float64Array): Float64Array {
  const all = new Float64Array(start.length);
  let latest = -Infinity;
  for (let i = 0; i < all.length; i++) {
    latest = Math.max(latest, start[i]! + dur[i]!);
    all[i] = latest;
  }
  return all;
}

/**
 * Returns the sums at all resolutions. Each item has columns twice as wide as those of the item
 * before it. The last item has a single column.
 */
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

/**
 * Decodes a timeline. The order of the numbers is that in `View::numbers` (timeline/section.rs).
 */
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

/**
 * Returns the index of the first element that is greater than `value`, or the length if there is
 * none. The elements must be in ascending order.
 */
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

/**
 * Returns the start and end of an index range that contains all intervals overlapping the given
 * time range. It can also contain intervals that end earlier.
 */
export function between(intervals: Intervals, from: number, to: number): [number, number] {
  return [firstAbove(intervals.reach, from), firstAbove(intervals.start, to)];
}

/**
 * Adds up the columns that overlap a time range, for one CPU. Returns the time of each class,
 * followed by the number of spans that start (`by`), and the total width of these columns.
 */
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

/**
 * Returns the index of the innermost span that is drawn in `lane` at the time `at`. If there is
 * none, returns the nearest span that is less than `near` away, or -1.
 */
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
    // If several spans contain the time, the innermost one comes last.
    if (away <= distance) {
      found = i;
      distance = away;
    }
  }
  return found;
}

/**
 * Returns the index of the wake-up that led to a run. The thread `source` started this run at the
 * time `start` on the CPU with the index `place`. Returns -1 if the wake-up is unknown.
 */
export function wakeUpOf(timeline: Timeline, place: number, source: number, start: number): number {
  const { ran, to, source: of } = timeline.wakeups;
  for (let i = firstAbove(ran, start) - 1; i >= 0 && ran[i] === start; i--) {
    if (to[i] === place && of[i] === source) return i;
  }
  return -1;
}
