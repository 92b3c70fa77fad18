// Describes the item under the pointer, or the item selected with the keyboard.

import { spanAt, sums, wakeUpOf, between, type Timeline } from "./data";
import { isCoarse, timeAt, type Scene } from "./draw";
import { AXIS, laneAt, rowAt } from "./layout";
import { length, point } from "./range";

/** Describes a span of a CPU, in several lines. */
export function spanWords(timeline: Timeline, place: number, span: number): string {
  const cpu = timeline.cpus[place]!;
  const { classes, sources } = timeline.meta;
  const source = cpu.source[span]!;
  const [name, its] = sources[source]!;
  const [start, dur, own] = [cpu.start[span]!, cpu.dur[span]!, cpu.own[span]!];
  const itself = own === dur ? "" : ` (${length(own)} without interruptions)`;
  const lines = [name, `${classes[its]!.name}, CPU ${cpu.cpu}`, `at ${point(start, 1_000)}: ${length(dur)}${itself}`];
  const wakeUp = wakeUpOf(timeline, place, source, start);
  if (wakeUp >= 0) {
    const { by, latency, from } = timeline.wakeups;
    const waker = sources[by[wakeUp]!]![0];
    lines.push(`woken by ${waker} on CPU ${timeline.cpus[from[wakeUp]!]!.cpu}, ${length(latency[wakeUp]!)} before it ran`);
  }
  return lines.join("\n");
}

/** Describes how a CPU spent its time between two times, by class. */
export function sumWords(timeline: Timeline, place: number, from: number, to: number): string {
  const cpu = timeline.cpus[place]!;
  const { classes } = timeline.meta;
  const { by, length: covered } = sums(timeline, cpu, from, to);
  const lines = [`CPU ${cpu.cpu}, ${length(covered)} around ${point((from + to) / 2, to - from)}; ${by[classes.length]!} intervals start`];
  classes
    .map((it, c) => ({ it, time: by[c]! }))
    .filter(({ time }) => time > 0)
    .sort((a, b) => b.time - a.time)
    .forEach(({ it, time }) => lines.push(`${it.name}: ${length(time)} (${((100 * time) / covered).toFixed(1)} %)`));
  return lines.join("\n");
}

/** Describes the item at a position on the canvas. Returns an empty text if there is none. */
export function wordsAt(scene: Scene, x: number, y: number): string {
  const { timeline, scroll, left } = scene;
  const at = timeAt(scene, x);
  const near = (2 * (scene.range.to - scene.range.from)) / (scene.width - left);
  if (x < left) return "";
  if (y < AXIS) {
    const marks = timeline.meta.marks.map((mark, place) => ({ mark, place }));
    const here = marks.filter(({ mark }) => at >= mark.at - near && at <= mark.at + mark.length + near);
    return here.map(({ mark, place }) => `${place + 1}: ${mark.name}, ${length(mark.length)} at ${point(mark.at, 1e6)}`).join("\n");
  }
  const row = rowAt(scene.rows, y + scroll);
  if (!row) return "";
  if (row.kind === "waits") {
    const waits = timeline.lanes[row.place]!;
    const [first, last] = between(waits, at - near, at + near);
    if (first >= last) return "";
    const reason = timeline.meta.reasons[waits.reason[first]!]!;
    return `${waits.name}\n${reason}: ${length(waits.dur[first]!)} at ${point(waits.start[first]!, 1_000)}`;
  }
  const cpu = timeline.cpus[row.place]!;
  if (isCoarse(scene, cpu)) return sumWords(timeline, row.place, at - near / 4, at + near / 4);
  const place = laneAt(row, y + scroll - row.y);
  let span = spanAt(timeline, cpu, place, at, near);
  if (span < 0 && place > 0) span = spanAt(timeline, cpu, 0, at, near);
  if (span >= 0) return spanWords(timeline, row.place, span);
  return timeline.meta.floor > 0 ? sumWords(timeline, row.place, at, at) : "";
}
