// The interactive timeline of a page. Decodes the data, draws it, and handles mouse, touch and
// keyboard input for zooming and moving.

import { firstAbove, read, type Meta, type Timeline } from "./data";
import { draw, palette, timeAt, wakeUpsLeftOut, type Scene } from "./draw";
import { AXIS, rowAt, rows } from "./layout";
import { unpack } from "./numbers";
import { length, ofHash, pan, point, toHash, within, zoom, type Range } from "./range";
import { spanWords, wordsAt } from "./words";

const KEYS =
  "Keys: left and right arrow to move, plus and minus to zoom, Home for the whole recording, up and down arrow to select " +
  "a CPU, comma and full stop to step through its intervals, Enter to zoom to the selected interval.";

function element<K extends keyof HTMLElementTagNameMap>(name: K, parent: Element, className: string): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  made.className = className;
  parent.append(made);
  return made;
}

class View {
  private readonly stage: HTMLDivElement;
  private readonly canvas: HTMLCanvasElement;
  private readonly spacer: HTMLDivElement;
  private readonly tip: HTMLParagraphElement;
  private readonly shown: HTMLParagraphElement;
  private readonly said: HTMLParagraphElement;
  private readonly scene: Scene;
  private readonly whole: Range;
  private readonly tall: number;
  private readonly pointers = new Map<number, { x: number; y: number }>();
  private moved = false;
  private isDue = false;
  private later = 0;

  constructor(
    private readonly timeline: Timeline,
    private readonly root: HTMLElement,
  ) {
    this.whole = { from: timeline.meta.from, to: timeline.meta.to };
    const tools = element("div", root, "timeline-tools");
    for (const [words, name, act] of [
      ["+", "Zoom in", () => this.zoomBy(0.5)],
      ["−", "Zoom out", () => this.zoomBy(2)],
      ["◀", "Earlier", () => this.panBy(-0.25)],
      ["▶", "Later", () => this.panBy(0.25)],
      ["Whole recording", "", () => this.go(this.whole)],
    ] as [string, string, () => void][]) {
      const button = element("button", tools, "");
      button.type = "button";
      button.textContent = words;
      if (name) button.setAttribute("aria-label", name);
      button.addEventListener("click", act);
    }
    this.shown = element("p", tools, "timeline-range");
    const hint = element("p", root, "legend");
    hint.id = "timeline-keys";
    hint.textContent =
      "Zoom in to see single intervals and wake-ups. An arrow leads from the code that woke a thread to the thread's next " +
      `run. Drag to move. To zoom, click the chart and turn the mouse wheel, or pinch. ${KEYS}`;
    this.stage = element("div", root, "timeline-stage");
    this.stage.tabIndex = 0;
    this.stage.setAttribute("role", "application");
    this.stage.setAttribute("aria-label", "Timeline of CPUs");
    this.stage.setAttribute("aria-describedby", hint.id);
    this.canvas = element("canvas", this.stage, "");
    this.canvas.setAttribute("aria-hidden", "true");
    this.spacer = element("div", this.stage, "");
    this.tip = element("p", this.stage, "timeline-tip");
    this.tip.hidden = true;
    this.said = element("p", root, "timeline-said");
    this.said.setAttribute("role", "status");
    const laid = rows(timeline);
    this.tall = laid.height;
    this.scene = {
      timeline,
      rows: laid.rows,
      range: this.whole,
      colours: palette(timeline, document.documentElement),
      width: 0,
      height: 0,
      left: 0,
      scroll: 0,
      focus: null,
      chosen: null,
    };
    root.hidden = false;
    root.classList.add("timeline-shown");
    this.listen();
    this.fit();
    this.follow(location.hash, false);
  }

  /** Fits the canvas to the available space. */
  private fit(): void {
    const width = this.stage.clientWidth;
    const height = Math.min(this.tall, Math.max(200, Math.floor(window.innerHeight * 0.75)));
    const ratio = window.devicePixelRatio || 1;
    this.scene.width = width;
    this.scene.height = height;
    this.scene.left = width < 500 ? 52 : 92;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = `${height}px`;
    this.spacer.style.height = `${this.tall - height}px`;
    this.due();
  }

  private due(): void {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.paint();
    });
  }

  private paint(): void {
    const ctx = this.canvas.getContext("2d");
    if (!ctx || this.scene.width <= this.scene.left) return;
    const ratio = this.canvas.width / this.scene.width;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw(ctx, this.scene);
    const { from, to } = this.scene.range;
    this.root.dataset["range"] = `${Math.round(from)},${Math.round(to)}`;
    this.shown.textContent = this.rangeWords();
    if (!this.root.dataset["drawn"]) this.root.dataset["drawn"] = String(Math.round(performance.now()));
  }

  private rangeWords(): string {
    const { from, to } = this.scene.range;
    return `${point(from, to - from)} to ${point(to, to - from)} (${length(to - from)})`;
  }

  /**
   * Shows a range. If it does not change for 300 ms, puts it into the page's address and announces
   * it to screen readers.
   */
  private go(range: Range): void {
    this.scene.range = within(this.whole, range);
    this.tip.hidden = true;
    this.due();
    clearTimeout(this.later);
    this.later = window.setTimeout(() => {
      const { focus } = this.scene;
      const cpu = focus === null ? null : this.timeline.cpus[focus]!.cpu;
      history.replaceState(null, "", toHash(this.scene.range, cpu));
      const many = wakeUpsLeftOut(this.scene);
      this.say(`${this.rangeWords()}${many ? `. Zoom in to see ${many} wake-ups.` : ""}`);
    }, 300);
  }

  private say(words: string): void {
    this.said.textContent = words;
  }

  private zoomBy(factor: number, at?: number): void {
    const { range } = this.scene;
    this.go(zoom(this.whole, range, at ?? this.middle(), factor));
  }

  /**
   * Returns the time at which keys and buttons zoom: the middle of the selected span if it is
   * visible, otherwise the middle of the range.
   */
  private middle(): number {
    const { range, chosen } = this.scene;
    if (chosen) {
      const cpu = this.timeline.cpus[chosen.place]!;
      const at = cpu.start[chosen.span]! + cpu.dur[chosen.span]! / 2;
      if (at > range.from && at < range.to) return at;
    }
    return (range.from + range.to) / 2;
  }

  private panBy(share: number): void {
    const { range } = this.scene;
    this.go(pan(this.whole, range, (range.to - range.from) * share));
  }

  /** Shows the range in the fragment of an address, if there is one. */
  private follow(hash: string, isAsked: boolean): void {
    const wanted = ofHash(hash);
    if (!wanted) return;
    const place = this.timeline.cpus.findIndex((it) => it.cpu === wanted.cpu);
    this.scene.focus = place < 0 ? null : place;
    this.scene.chosen = null;
    this.go(wanted);
    const row = this.scene.rows.find((it) => it.kind === "cpu" && it.place === place);
    if (row) this.stage.scrollTop = row.y - AXIS - 20;
    this.stage.scrollIntoView({ block: "nearest" });
    if (isAsked) this.stage.focus({ preventScroll: true });
  }

  private listen(): void {
    const { stage } = this;
    // By the time of the event, `go` may have put its own range into `location`.
    window.addEventListener("hashchange", (event) => this.follow(new URL(event.newURL).hash, true));
    // A click on a link to the current address does not fire `hashchange`.
    document.addEventListener("click", (event) => {
      const link = event.target instanceof Element ? event.target.closest("a") : null;
      if (link && link.hash === location.hash && ofHash(link.hash)) this.follow(link.hash, true);
    });
    new ResizeObserver(() => this.fit()).observe(stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.scene.colours = palette(this.timeline, document.documentElement);
      this.due();
    });
    stage.addEventListener("scroll", () => {
      this.scene.scroll = stage.scrollTop;
      this.due();
    });
    stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    stage.addEventListener("dblclick", (event) => this.zoomBy(0.25, this.timeOf(event)));
    stage.addEventListener("keydown", (event) => {
      if (!event.ctrlKey && !event.altKey && !event.metaKey && this.key(event.key)) event.preventDefault();
    });
    stage.addEventListener("pointerdown", (event) => {
      this.moved = false;
      this.pointers.set(event.pointerId, this.place(event));
    });
    stage.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"] as const) {
      stage.addEventListener(name, (event) => {
        this.pointers.delete(event.pointerId);
        if (name === "pointerup" && !this.moved) this.point(event, true);
      });
    }
    stage.addEventListener("pointerleave", () => {
      if (this.pointers.size === 0) this.tip.hidden = true;
    });
  }

  /** Returns the position of an event within the canvas. */
  private place(event: MouseEvent): { x: number; y: number } {
    const box = this.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  private timeOf(event: MouseEvent): number {
    return timeAt(this.scene, Math.max(this.scene.left, this.place(event).x));
  }

  private wheel(event: WheelEvent): void {
    const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    const isZoom = (event.ctrlKey || event.metaKey || document.activeElement === this.stage) && !event.shiftKey;
    if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
      event.preventDefault();
      this.panBy(sideways / this.scene.width);
    } else if (isZoom) {
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      this.zoomBy(2 ** Math.max(-1.5, Math.min(1.5, (event.deltaY * lines) / 240)), this.timeOf(event));
    }
  }

  private move(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    const now = this.place(event);
    if (!before) return this.point(event, false);
    const { scene, pointers } = this;
    const [other] = [...pointers].filter(([id]) => id !== event.pointerId);
    const per = (scene.range.to - scene.range.from) / (scene.width - scene.left);
    if (other) {
      const fixed = other[1].x;
      const factor = Math.max(8, Math.abs(before.x - fixed)) / Math.max(8, Math.abs(now.x - fixed));
      this.moved = true;
      pointers.set(event.pointerId, now);
      this.zoomBy(factor, timeAt(scene, fixed));
    } else if (this.moved || Math.abs(now.x - before.x) > 3) {
      if (!this.moved) this.stage.setPointerCapture(event.pointerId);
      this.moved = true;
      pointers.set(event.pointerId, now);
      this.go(pan(this.whole, scene.range, (before.x - now.x) * per));
    }
  }

  /**
   * Describes the item under the pointer in a tooltip. After a click (`isAsked`), also announces
   * the description to screen readers and selects the CPU.
   */
  private point(event: MouseEvent, isAsked: boolean): void {
    const { x, y } = this.place(event);
    const words = wordsAt(this.scene, x, y);
    const { tip, scene, stage } = this;
    tip.hidden = words === "";
    tip.textContent = words;
    if (isAsked && words) this.say(words);
    const row = rowAt(scene.rows, y + scene.scroll);
    if (isAsked && row?.kind === "cpu") {
      scene.focus = row.place;
      this.due();
    }
    const left = Math.min(x + 12, scene.width - tip.offsetWidth - 4);
    const above = y - tip.offsetHeight - 8;
    tip.style.left = `${Math.max(2, left)}px`;
    tip.style.top = `${stage.scrollTop + (above > 2 ? above : y + 18)}px`;
  }

  /** Handles a key. Returns whether the key had an effect. */
  private key(key: string): boolean {
    switch (key) {
      case "ArrowLeft":
        this.panBy(-0.1);
        return true;
      case "ArrowRight":
        this.panBy(0.1);
        return true;
      case "+":
      case "=":
        this.zoomBy(0.5);
        return true;
      case "-":
      case "_":
        this.zoomBy(2);
        return true;
      case "Home":
        this.go(this.whole);
        return true;
      case "ArrowUp":
      case "ArrowDown":
        this.choose(key === "ArrowUp" ? -1 : 1);
        return true;
      case ",":
      case ".":
        this.walk(key === "," ? -1 : 1);
        return true;
      case "Enter":
        return this.toChosen();
      case "Escape":
        this.scene.chosen = null;
        this.tip.hidden = true;
        this.due();
        return true;
      default:
        return false;
    }
  }

  /** Selects the CPU above (`by` is -1) or below (1). */
  private choose(by: number): void {
    const { scene, timeline } = this;
    const last = timeline.cpus.length - 1;
    const place = scene.focus === null ? (by > 0 ? 0 : last) : Math.min(last, Math.max(0, scene.focus + by));
    scene.focus = place;
    scene.chosen = null;
    const row = scene.rows.find((it) => it.kind === "cpu" && it.place === place);
    if (row && row.y - scene.scroll < AXIS) this.stage.scrollTop = row.y - AXIS;
    if (row && row.y + row.height - scene.scroll > scene.height) this.stage.scrollTop = row.y + row.height - scene.height;
    this.say(`CPU ${timeline.cpus[place]!.cpu}`);
    this.due();
  }

  /**
   * Selects the next span (`by` is 1) or previous span (-1) on the selected CPU, skips idle time,
   * and announces the span to screen readers. Moves the range if the span is not entirely visible.
   */
  private walk(by: number): void {
    const { scene, timeline } = this;
    scene.focus ??= 0;
    const cpu = timeline.cpus[scene.focus]!;
    const { classes, sources } = timeline.meta;
    const { range } = scene;
    let span = scene.chosen?.span ?? firstAbove(cpu.start, (range.from + range.to) / 2) - (by > 0 ? 1 : 0);
    do span += by;
    while (span >= 0 && span < cpu.start.length && classes[sources[cpu.source[span]!]![1]]!.look === "idle");
    if (span < 0 || span >= cpu.start.length) return this.say("no further interval");
    scene.chosen = { place: scene.focus, span };
    const start = cpu.start[span]!;
    if (start < range.from || start + cpu.dur[span]! > range.to) {
      scene.range = pan(this.whole, range, start + cpu.dur[span]! / 2 - (range.from + range.to) / 2);
    }
    clearTimeout(this.later);
    this.say(spanWords(timeline, scene.focus, span));
    this.due();
  }

  private toChosen(): boolean {
    const { chosen } = this.scene;
    if (!chosen) return false;
    const cpu = this.timeline.cpus[chosen.place]!;
    const [start, dur] = [cpu.start[chosen.span]!, cpu.dur[chosen.span]!];
    this.go({ from: start - dur / 2, to: start + 1.5 * dur });
    return true;
  }
}

async function begin(): Promise<void> {
  const root = document.getElementById("timeline-zoom");
  const text = (id: string) => document.getElementById(id)?.textContent ?? "";
  // Browsers without `DecompressionStream` keep the static drawing of the whole recording.
  if (!root || !("DecompressionStream" in window)) return;
  const meta = JSON.parse(text("ticktax-timeline")) as Meta;
  const timeline = read(meta, await unpack(text("ticktax-timeline-numbers")));
  new View(timeline, root);
}

void begin();
