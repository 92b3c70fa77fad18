// Layout of a timeline's rows. Rows for threads' waits come first, followed by a row for each CPU,
// divided into lanes. The lane for threads is at the bottom.

import type { Timeline } from "./data";

export interface Row {
  kind: "waits" | "cpu";
  /** Index in `timeline.lanes` (waits) or `timeline.cpus`. */
  place: number;
  y: number;
  height: number;
  /** Heights of the row's lanes, from bottom to top. */
  lanes: number[];
}

export const AXIS = 34;
const WAITS = 20;
const GAP = 10;
/** Heights of a CPU's lanes, from bottom to top. `Class.lane` explains the order. */
const LANES = [26, 10, 10, 8];
/**
 * Desired minimum height of all CPUs' lanes together. Lanes are enlarged up to twofold to reach it.
 */
const ROOM = 220;

/** Returns the top of a lane within its CPU's row, and its height. */
export function laneOf(row: Row, place: number): [number, number] {
  const lanes = row.lanes;
  let foot = row.height - GAP / 2;
  for (let i = 0; i < place; i++) foot -= lanes[i] ?? 0;
  const height = lanes[place] ?? 0;
  return [foot - height, height];
}

/** Returns all rows and their total height. */
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
  // If there are only a few CPUs, make their rows taller.
  const scale = Math.min(2, Math.max(1, ROOM / timeline.cpus.length / sum));
  const lanes = used.map((it) => Math.round(it * scale));
  const height = lanes.reduce((sum, it) => sum + it, GAP);
  timeline.cpus.forEach((_, place) => add("cpu", place, height, lanes));
  return { rows: all, height: y + 4 };
}

/** Returns the row at a vertical position. */
export function rowAt(all: Row[], y: number): Row | null {
  return all.find((row) => y >= row.y && y < row.y + row.height) ?? null;
}

/** Returns the index of the lane at a vertical position within a row. */
export function laneAt(row: Row, y: number): number {
  const place = row.lanes.findIndex((_, place) => y >= laneOf(row, place)[0]);
  return place < 0 ? row.lanes.length - 1 : place;
}
