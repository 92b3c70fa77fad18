// Draws a time range of a timeline on a canvas. Long ranges are drawn from the columns, and short
// ranges from individual spans.

import { between, firstAbove, type Cpu, type Timeline, type Waits } from "./data";
import { AXIS, laneOf, type Row } from "./layout";
import { length, tick, ticks, type Range } from "./range";

/**
 * Lines of the pattern for each look, which distinguish looks without colour. The numbers are the
 * coordinates x and y of the start and end of a line, in a tile of 8 by 8 pixels.
 */
const STROKES: Record<string, number[][]> = {
  p1: [[0, 8, 8, 0]],
  p2: [[0, 0, 8, 8]],
  p3: [[0, 4, 8, 4]],
  p4: [[4, 0, 4, 8]],
  others: [[0, 8, 8, 0], [0, 0, 8, 8]],
  kernel: [[3, 4, 5, 4]],
  tool: [[0, 4, 8, 4], [4, 0, 4, 8]],
  nmi: [[0, 4, 4, 0], [4, 0, 8, 4]],
  gap: [[0, 6, 8, 6], [0, 2, 8, 2]],
};
/** Maximum number of spans per CPU that are drawn individually. */
const SINGLE = 20_000;
/** Maximum number of wake-ups in the visible range. If there are more, none is drawn. */
const EDGES = 250;
const FONT = "11px system-ui, sans-serif";

/** Colours from the page's style sheet. */
export interface Palette {
  ground: string;
  line: string;
  ink: string;
  soft: string;
  wait: string;
  mark: string;
  /** Colour of each class, with and without its pattern. */
  fill: (string | CanvasPattern)[];
  plain: string[];
}

export function palette(timeline: Timeline, element: Element): Palette {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const strokes = colour("--t-strokes");
  const plain = timeline.meta.classes.map((it) => colour(`--t-${it.look}`));
  const fill = timeline.meta.classes.map((it, place) => pattern(plain[place]!, strokes, STROKES[it.look]) ?? plain[place]!);
  return {
    ground: colour("--ground"),
    line: colour("--line"),
    ink: colour("--ink"),
    soft: colour("--soft"),
    wait: colour("--t-wait"),
    mark: colour("--alarm"),
    fill,
    plain,
  };
}

function pattern(colour: string, strokes: string, lines: number[][] | undefined): CanvasPattern | null {
  if (!lines) return null;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const ctx = tile.getContext("2d")!;
  ctx.fillStyle = colour;
  ctx.fillRect(0, 0, 8, 8);
  ctx.strokeStyle = strokes;
  ctx.lineWidth = 1.5;
  for (const [x, y, toX, toY] of lines) {
    ctx.beginPath();
    ctx.moveTo(x!, y!);
    ctx.lineTo(toX!, toY!);
    ctx.stroke();
  }
  return ctx.createPattern(tile, "repeat");
}

/** A timeline, its layout on the canvas, the visible part and the selection. */
export interface Scene {
  timeline: Timeline;
  rows: Row[];
  range: Range;
  colours: Palette;
  /** Size of the canvas, in CSS pixels. */
  width: number;
  height: number;
  /** Width of the area for names at the left edge. */
  left: number;
  /** Vertical scroll position. */
  scroll: number;
  /** Index of the selected CPU, which keys act on. */
  focus: number | null;
  /** Selected span: the index of its CPU, and its index on that CPU. */
  chosen: { place: number; span: number } | null;
}

/** Returns the horizontal position of a time. */
export function xOf(scene: Scene, at: number): number {
  const { range, left, width } = scene;
  return left + ((at - range.from) / (range.to - range.from)) * (width - left);
}

/** Returns the time at a horizontal position. */
export function timeAt(scene: Scene, x: number): number {
  const { range, left, width } = scene;
  return range.from + ((x - left) / (width - left)) * (range.to - range.from);
}

/**
 * Returns whether to draw columns instead of individual spans. This requires that a column is not
 * wider than a pixel, and that there are too many spans or some spans were left out.
 */
export function isCoarse(scene: Scene, cpu: Cpu): boolean {
  const { range, width, left, timeline } = scene;
  if ((range.to - range.from) / (width - left) < timeline.meta.columns.width) return false;
  const [first, last] = between(cpu, range.from, range.to);
  return timeline.meta.floor > 0 || last - first > SINGLE;
}

export function draw(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { colours, width, height, left, scroll, rows } = scene;
  ctx.fillStyle = colours.ground;
  ctx.fillRect(0, 0, width, height);
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  const visible = rows.filter((row) => row.y + row.height > scroll && row.y < scroll + height);
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, AXIS, width - left, height - AXIS);
  ctx.clip();
  for (const row of visible) {
    if (row.kind === "cpu") cpuRow(ctx, scene, row);
    else waitsRow(ctx, scene, row, scene.timeline.lanes[row.place]!);
  }
  wakeUps(ctx, scene, visible);
  marked(ctx, scene);
  ctx.restore();
  names(ctx, scene, visible);
  axis(ctx, scene);
}

function cpuRow(ctx: CanvasRenderingContext2D, scene: Scene, row: Row): void {
  const { colours, width, left, scroll, focus } = scene;
  const y = row.y - scroll;
  const cpu = scene.timeline.cpus[row.place]!;
  const [top, tall] = laneOf(row, 0);
  ctx.fillStyle = colours.line;
  ctx.fillRect(left, y + top + tall, width - left, 1);
  if (isCoarse(scene, cpu)) {
    columns(ctx, scene, cpu, row);
  } else {
    if (scene.timeline.meta.floor > 0) {
      // Short spans were left out, but the columns include their time. Draw it in the background.
      ctx.globalAlpha = 0.3;
      columns(ctx, scene, cpu, row);
      ctx.globalAlpha = 1;
    }
    spans(ctx, scene, cpu, row);
  }
  if (focus === row.place) {
    ctx.strokeStyle = colours.soft;
    ctx.setLineDash([4, 3]);
    ctx.strokeRect(left + 0.5, y + 0.5, width - left - 1, row.height - 1);
    ctx.setLineDash([]);
  }
  const { chosen } = scene;
  if (chosen && chosen.place === row.place) {
    const start = cpu.start[chosen.span]!;
    const x = xOf(scene, start);
    ctx.strokeStyle = colours.ink;
    ctx.lineWidth = 2;
    ctx.strokeRect(x, y + 2, Math.max(3, xOf(scene, start + cpu.dur[chosen.span]!) - x), row.height - 4);
    ctx.lineWidth = 1;
  }
}

/** Returns whether two shares have nearly the same height in a lane that is `tall` pixels high. */
function alike(share: number, other: number, tall: number): boolean {
  return other > 0 && Math.abs(other - share) * tall < 0.25;
}

/** Draws the share of each class in each pixel. Classes in the same lane are stacked. */
function bars(ctx: CanvasRenderingContext2D, scene: Scene, sums: Float32Array, row: Row): void {
  const { timeline, colours, left, scroll } = scene;
  const y = row.y - scroll;
  const { classes } = timeline.meta;
  const count = sums.length / classes.length;
  const base = new Float32Array(count * 4);
  classes.forEach((it, c) => {
    if (it.look === "idle") return;
    const [top, tall] = laneOf(row, it.lane);
    const foot = y + top + tall;
    ctx.beginPath();
    let any = false;
    for (let x = 0; x < count; ) {
      const share = sums[x * classes.length + c]!;
      if (share <= 0) {
        x++;
        continue;
      }
      const below = base[x * 4 + it.lane]!;
      const size = Math.min(tall - below, Math.max(share * tall, it.lane > 0 ? 1.5 : 0));
      // Combine adjacent pixels that have nearly the same height into one rectangle.
      let end = x;
      do {
        base[end * 4 + it.lane] = below + size;
        end++;
      } while (end < count && base[end * 4 + it.lane] === below && alike(share, sums[end * classes.length + c]!, tall));
      if (size > 0.1) {
        ctx.rect(left + x, foot - below - size, end - x, size);
        any = true;
      }
      x = end;
    }
    if (any) {
      ctx.fillStyle = colours.fill[c]!;
      ctx.fill();
    }
  });
}

function columns(ctx: CanvasRenderingContext2D, scene: Scene, cpu: Cpu, row: Row): void {
  const { timeline, range, width, left } = scene;
  const { classes, columns } = timeline.meta;
  const pixels = Math.max(1, Math.floor(width - left));
  const pixel = (range.to - range.from) / pixels;
  let level = 0;
  while (level + 1 < cpu.levels.length && columns.width * 2 ** (level + 1) <= pixel) level++;
  const table = cpu.levels[level]!;
  const step = columns.width * 2 ** level;
  const stride = classes.length + 1;
  const count = table.length / stride;
  const sums = new Float32Array(pixels * classes.length);
  for (let x = 0; x < pixels; x++) {
    const at = (range.from + x * pixel - columns.begin) / step;
    const first = Math.max(0, Math.floor(at));
    const last = Math.min(count, Math.max(first + 1, Math.floor(at + pixel / step)));
    // The first column may start before the recording, and the last one may end after it.
    const from = Math.max(timeline.meta.from, columns.begin + first * step);
    const to = Math.min(timeline.meta.to, columns.begin + last * step);
    const covered = Math.max(1, to - from);
    for (let column = first; column < last; column++) {
      for (let c = 0; c < classes.length; c++) sums[x * classes.length + c]! += table[column * stride + c]! / covered;
    }
  }
  bars(ctx, scene, sums, row);
}

/** Draws wide spans individually, and the own time of narrow spans as a share of each pixel. */
function spans(ctx: CanvasRenderingContext2D, scene: Scene, cpu: Cpu, row: Row): void {
  const { timeline, range, colours, width, left, scroll } = scene;
  const y = row.y - scroll;
  const { classes, sources } = timeline.meta;
  const pixels = Math.max(1, Math.floor(width - left));
  const pixel = (range.to - range.from) / pixels;
  const narrow = new Float32Array(pixels * classes.length);
  const [first, last] = between(cpu, range.from, range.to);
  const wide: number[] = [];
  for (let i = first; i < last; i++) {
    const start = cpu.start[i]!;
    const dur = cpu.dur[i]!;
    if (start + dur <= range.from) continue;
    if (dur >= 2 * pixel) {
      wide.push(i);
    } else {
      const x = Math.min(pixels - 1, Math.max(0, Math.floor((start - range.from) / pixel)));
      narrow[x * classes.length + sources[cpu.source[i]!]![1]]! += Math.max(0, cpu.own[i]!) / pixel;
    }
  }
  bars(ctx, scene, narrow, row);
  for (const i of wide) {
    const [name, place] = sources[cpu.source[i]!]!;
    const it = classes[place]!;
    if (it.look === "idle") continue;
    const [top, tall] = laneOf(row, it.lane);
    const from = Math.max(left - 2, xOf(scene, cpu.start[i]!));
    const to = Math.min(width + 2, xOf(scene, cpu.start[i]! + cpu.dur[i]!));
    ctx.fillStyle = colours.fill[place]!;
    ctx.fillRect(from, y + top + 1, Math.max(1, to - from - (to - from > 4 ? 1 : 0)), tall - 1);
    label(ctx, colours, name, colours.plain[place]!, [from, to, y + top + tall / 2 + 0.5], tall);
  }
}

/**
 * Draws a name on a plain background and shortens it to fit. Omits it if there is too little room.
 */
function label(ctx: CanvasRenderingContext2D, colours: Palette, name: string, ground: string, [from, to, y]: [number, number, number], tall: number): void {
  const room = Math.floor((to - from - 8) / 6.2);
  if (room < 3 || tall < 10) return;
  const letters = Array.from(name);
  const shown = letters.length <= room ? name : `${letters.slice(0, room - 1).join("")}…`;
  ctx.font = tall < 14 ? "9px system-ui, sans-serif" : FONT;
  const wide = Math.min(to - from - 4, ctx.measureText(shown).width + 6);
  ctx.fillStyle = ground;
  ctx.fillRect(from + 2, y - tall / 2 + 1, wide, tall - 2);
  ctx.fillStyle = colours.ground;
  ctx.fillText(shown, from + 5, y, to - from - 8);
  ctx.font = FONT;
}

function waitsRow(ctx: CanvasRenderingContext2D, scene: Scene, row: Row, waits: Waits): void {
  const { range, colours, width, left, scroll, timeline } = scene;
  const y = row.y - scroll;
  const pixel = (range.to - range.from) / (width - left);
  const [first, last] = between(waits, range.from, range.to);
  ctx.fillStyle = colours.line;
  ctx.fillRect(left, y + row.height - 2, width - left, 1);
  ctx.fillStyle = colours.wait;
  const tall = row.height - 6;
  const narrow = new Float32Array(Math.max(1, Math.floor(width - left)));
  for (let i = first; i < last; i++) {
    const start = waits.start[i]!;
    const dur = waits.dur[i]!;
    if (start + dur <= range.from) continue;
    if (dur < 2 * pixel) {
      const x = Math.min(narrow.length - 1, Math.max(0, Math.floor((start - range.from) / pixel)));
      narrow[x]! += dur / pixel;
      continue;
    }
    const from = Math.max(left - 2, xOf(scene, start));
    const to = Math.min(width + 2, xOf(scene, start + dur));
    ctx.fillRect(from, y + 3, to - from, tall);
    if (to - from > 40) {
      label(ctx, colours, timeline.meta.reasons[waits.reason[i]!]!, colours.wait, [from, to, y + row.height / 2], tall);
      ctx.fillStyle = colours.wait;
    }
  }
  narrow.forEach((share, x) => {
    const size = Math.min(tall, Math.max(1.5, share * tall));
    if (share > 0) ctx.fillRect(left + x, y + 3 + tall - size, 1, size);
  });
}

/** Draws an arrow from each wake-up to the run that followed it. */
function wakeUps(ctx: CanvasRenderingContext2D, scene: Scene, visible: Row[]): void {
  const { timeline, range, colours, scroll } = scene;
  const { ran, latency, from, to } = timeline.wakeups;
  const first = firstAbove(ran, range.from);
  const last = firstAbove(ran, range.to);
  if (last - first > EDGES) return;
  const rows = new Map(visible.filter((row) => row.kind === "cpu").map((row) => [row.place, row]));
  ctx.strokeStyle = colours.ink;
  ctx.fillStyle = colours.ink;
  for (let i = first; i < last; i++) {
    const [begin, end] = [rows.get(from[i]!), rows.get(to[i]!)];
    if (!begin || !end) continue;
    const [top, tall] = laneOf(end, 0);
    const x = xOf(scene, ran[i]! - latency[i]!);
    const toX = xOf(scene, ran[i]!);
    const y = begin.y - scroll + top - 2;
    const toY = end.y - scroll + top + (begin === end ? 0 : tall / 2);
    ctx.beginPath();
    ctx.moveTo(x, y);
    ctx.bezierCurveTo((x + toX) / 2, y, (x + toX) / 2, toY, toX, toY);
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x, y, 2, 0, 7);
    ctx.fill();
    ctx.beginPath();
    ctx.moveTo(toX, toY);
    ctx.lineTo(toX - 5, toY - 3);
    ctx.lineTo(toX - 5, toY + 3);
    ctx.fill();
  }
}

/**
 * Returns the number of wake-ups in the visible range if there are too many to draw, otherwise 0.
 */
export function wakeUpsLeftOut(scene: Scene): number {
  const { ran } = scene.timeline.wakeups;
  const count = firstAbove(ran, scene.range.to) - firstAbove(ran, scene.range.from);
  return count > EDGES ? count : 0;
}

/** Draws vertical lines at the start and end of each mark. */
function marked(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { timeline, colours, height } = scene;
  ctx.strokeStyle = colours.mark;
  ctx.setLineDash([2, 3]);
  for (const { at, length } of timeline.meta.marks) {
    for (const time of [at, at + length]) {
      const x = Math.round(xOf(scene, time)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(x, AXIS);
      ctx.lineTo(x, height);
      ctx.stroke();
    }
  }
  ctx.setLineDash([]);
}

function names(ctx: CanvasRenderingContext2D, scene: Scene, visible: Row[]): void {
  const { timeline, colours, left, height, scroll } = scene;
  ctx.fillStyle = colours.ground;
  ctx.fillRect(0, 0, left, height);
  for (const row of visible) {
    const y = row.y - scroll;
    const room = Math.floor((left - 6) / 6);
    const name = row.kind === "cpu" ? `CPU ${timeline.cpus[row.place]!.cpu}` : timeline.lanes[row.place]!.name;
    const letters = Array.from(name);
    ctx.fillStyle = row.kind === "cpu" ? colours.ink : colours.wait;
    ctx.fillText(letters.length > room ? `${letters.slice(0, room - 1).join("")}…` : name, 3, y + row.height / 2, left - 4);
  }
}

function axis(ctx: CanvasRenderingContext2D, scene: Scene): void {
  const { timeline, range, colours, width, left } = scene;
  ctx.fillStyle = colours.ground;
  ctx.fillRect(0, 0, width, AXIS);
  ctx.strokeStyle = colours.line;
  const { step, at } = ticks(range, (width - left) / 80);
  ctx.textAlign = "center";
  ctx.beginPath();
  for (const time of at) {
    const x = Math.round(xOf(scene, time)) + 0.5;
    ctx.moveTo(x, AXIS - 6);
    ctx.lineTo(x, AXIS);
    const text = tick(time, step);
    const half = ctx.measureText(text).width / 2;
    ctx.fillStyle = colours.soft;
    if (x - half > left - 10 && x + half < width) ctx.fillText(text, x, AXIS - 13);
  }
  ctx.moveTo(left, AXIS - 0.5);
  ctx.lineTo(width, AXIS - 0.5);
  ctx.stroke();
  ctx.textAlign = "left";
  ctx.fillText(left < 60 ? "s" : "seconds", 3, AXIS - 13);
  ctx.fillStyle = colours.mark;
  timeline.meta.marks.forEach(({ at, length: lasted }, place) => {
    const x = xOf(scene, at);
    const end = xOf(scene, at + lasted);
    if (end < left || x > width) return;
    ctx.fillRect(Math.max(left, x), 3, Math.max(2, Math.min(width, end) - Math.max(left, x)), 3);
    const text = end - x > 90 ? `${place + 1}: ${length(lasted)}` : `${place + 1}`;
    ctx.fillText(text, Math.min(width - 12, Math.max(left + 1, x)), 12);
  });
}
