// Which row of a timeline is where: threads' waits, then each CPU in lanes, threads at its foot.

import type { Timeline } from "./data";

export interface Row {
  kind: "waits" | "cpu";
  /** Which thread, or which CPU. */
  place: number;
  y: number;
  height: number;
  /** The heights of its lanes, from below. */
  lanes: number[];
}

export const AXIS = 34;
const WAITS = 20;
const GAP = 10;
/** The heights of a CPU's lanes, from below: threads, softirqs, interrupts, what lies across these. */
const LANES = [26, 10, 10, 8];
/** How tall all CPUs together should be at least. */
const ROOM = 220;

/** Where a lane lies within its CPU's row: its top and its height. */
export function laneOf(row: Row, place: number): [number, number] {
  const lanes = row.lanes;
  let foot = row.height - GAP / 2;
  for (let i = 0; i < place; i++) foot -= lanes[i] ?? 0;
  const height = lanes[place] ?? 0;
  return [foot - height, height];
}

/** All rows, and how tall they are together. */
export function rows(timeline: Timeline): { rows: Row[]; height: number } {
  const all: Row[] = [];
  let y = AXIS;
  const add = (kind: Row["kind"], place: number, height: number, lanes: number[]) => {
    all.push({ kind, place, y, height, lanes });
    y += height;
  };
  timeline.lanes.forEach((_, place) => add("waits", place, WAITS, [WAITS]));
  if (all.length > 0) y += GAP;
  const classes = timeline.meta.classes;
  const used = LANES.slice(0, classes.some((it) => it.lane === 3) ? 4 : 3);
  const sum = used.reduce((sum, it) => sum + it, 0);
  // A few CPUs may be taller.
  const scale = Math.min(2, Math.max(1, ROOM / timeline.cpus.length / sum));
  const lanes = used.map((it) => Math.round(it * scale));
  const height = lanes.reduce((sum, it) => sum + it, GAP);
  timeline.cpus.forEach((_, place) => add("cpu", place, height, lanes));
  return { rows: all, height: y + 4 };
}

/** The row at a height. */
export function rowAt(all: Row[], y: number): Row | null {
  return all.find((row) => y >= row.y && y < row.y + row.height) ?? null;
}

/** The lane of a row at a height within it. */
export function laneAt(row: Row, y: number): number {
  const place = row.lanes.findIndex((_, place) => y >= laneOf(row, place)[0]);
  return place < 0 ? row.lanes.length - 1 : place;
}
