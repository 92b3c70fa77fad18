// Measures timelines of the same spans in Chromium: `node measure.mjs PAGE.html ROUNDS NAME...`
//
// PAGE.html is a page written by `ticktax report --html`. NAME is ticktax, speedscope, echarts,
// flame-chart-js or vis-timeline. A number after a library's name limits its spans, as in
// echarts@100000.
//
// Prints one line of JSON per round. It contains the time in ms until the page is first drawn,
// counted from the navigation or from passing the spans to a library. It also contains the frame
// rates while wheel events zoom in and out and while they scroll sideways. Each frame waits for the
// previous one. The libraries' span objects are created before timing starts.

import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { inflateRawSync } from "node:zlib";
import { chromium } from "playwright-core";

const PROGRAMS = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const PATIENCE = 120_000;
const FRAMES = 60;
const require = createRequire(import.meta.url);
const [file, rounds, ...names] = process.argv.slice(2);

/** The spans of a page by CPU: start, duration and name. */
function spansOf(page) {
  const part = (id) => page.split(`id="${id}">`)[1].split("</script>")[0];
  const meta = JSON.parse(part("ticktax-timeline"));
  const bytes = inflateRawSync(Buffer.from(part("ticktax-timeline-numbers"), "base64"));
  let at = 0;
  const next = () => {
    for (let number = 0, scale = 1; ; scale *= 128) {
      const byte = bytes[at++];
      number += (byte & 127) * scale;
      if (byte < 128) return number;
    }
  };
  const signed = () => {
    const number = next();
    return number % 2 ? -(number + 1) / 2 : number / 2;
  };
  for (let skip = meta.cpus.length * (meta.classes.length + 1) * meta.columns.count; skip > 0; skip--) next();
  return meta.cpus.map(({ cpu, spans }) => {
    const many = (get) => Array.from({ length: spans }, get);
    let now = 0;
    const start = many(() => (now += signed()));
    const dur = many(signed);
    many(signed);
    return { cpu, spans: many((_, i) => [start[i], dur[i], meta.sources[next()][0]]) };
  });
}

/** A script for Speedscope with the same spans and one profile per CPU. */
function speedscope(cpus, folder) {
  const frames = new Map();
  const frame = (name) => frames.get(name) ?? frames.set(name, frames.size).get(name);
  const profiles = cpus.map(({ cpu, spans }) => {
    const events = [];
    const open = [];
    const close = (until) => {
      while (open.length && open.at(-1).at <= until) events.push(open.pop());
    };
    for (const [start, dur, name] of spans) {
      close(start);
      const end = Math.min(start + dur, open.at(-1)?.at ?? Infinity);
      events.push({ type: "O", frame: frame(name), at: start });
      open.push({ type: "C", frame: frame(name), at: end });
    }
    close(Infinity);
    const last = events.at(-1)?.at ?? 0;
    return { type: "evented", name: `CPU ${cpu}`, unit: "nanoseconds", startValue: 0, endValue: last, events };
  });
  const shared = { frames: [...frames.keys()].map((name) => ({ name })) };
  const profile = JSON.stringify({ $schema: "https://www.speedscope.app/file-format-schema.json", shared, profiles });
  const script = join(folder, "spans.js");
  const base64 = Buffer.from(profile).toString("base64");
  writeFileSync(script, `speedscope.loadFileFromBase64("spans.json", "${base64}")`);
  const index = join(dirname(require.resolve("speedscope/package.json")), "dist/release/index.html");
  return { url: `${pathToFileURL(index).href}#localProfilePath=${script}`, bytes: profile.length };
}

/** Code that draws `spans`, given as [start, dur, name, CPU], with each library. */
const LIBRARIES = {
  echarts: {
    script: "echarts/dist/echarts.min.js",
    async draw() {
      const chart = echarts.init(document.getElementById("place"));
      const renderItem = (params, api) => {
        const [x, y] = api.coord([api.value(0), api.value(2)]);
        const [width] = api.size([api.value(1), 0]);
        return { type: "rect", shape: { x, y: y - 10, width: Math.max(1, width), height: 20 }, style: { fill: "#0b57b0" } };
      };
      const data = spans.map(([start, dur, , cpu]) => [start, dur, cpu]);
      const begun = performance.now();
      const done = new Promise((resolve) => chart.on("finished", resolve));
      chart.setOption({
        animation: false,
        xAxis: { type: "value", max: "dataMax" },
        yAxis: { type: "value", min: -1, max: 4 },
        dataZoom: [{ type: "inside", filterMode: "weakFilter", throttle: 0 }],
        series: [{ type: "custom", renderItem, encode: { x: [0], y: 2 }, data, clip: true }],
      });
      await done;
      return performance.now() - begun;
    },
  },
  "flame-chart-js": {
    script: "flame-chart-js/dist/index.min.js",
    async draw() {
      const length = Math.max(...spans.slice(-1000).map((it) => it[0] + it[1])) * 1.01;
      const roots = [];
      const open = [];
      for (const [begin, dur, name, cpu] of spans) {
        const node = { name, start: (begin + cpu * length) / 1e6, duration: dur / 1e6, children: [] };
        while (open.length && open.at(-1).start + open.at(-1).duration <= node.start) open.pop();
        (open.length ? open.at(-1).children : roots).push(node);
        open.push(node);
      }
      const canvas = document.createElement("canvas");
      canvas.width = 1200;
      canvas.height = 500;
      document.getElementById("place").append(canvas);
      const begun = performance.now();
      new flameChartJs.FlameChart({ canvas, data: roots, colors: {}, settings: {} });
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      return performance.now() - begun;
    },
  },
  "vis-timeline": {
    script: "vis-timeline/standalone/umd/vis-timeline-graph2d.min.js",
    async draw() {
      const items = spans.map(([start, dur, content, group], id) => ({ id, content, group, start: start / 1e6, end: (start + dur) / 1e6 }));
      const begun = performance.now();
      const groups = [0, 1, 2, 3].map((id) => ({ id, content: `CPU ${id}` }));
      new vis.Timeline(document.getElementById("place"), new vis.DataSet(items), new vis.DataSet(groups), { stack: false, height: "500px" });
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      return performance.now() - begun;
    },
  },
};

/** Sends one wheel event per frame at a position. Returns frames per second and the longest frame in ms. */
const wheel = (page, options) =>
  page.evaluate(
    async ([{ x, y, zoom, focus }, count]) => {
      const frame = () => new Promise(requestAnimationFrame);
      if (focus) document.querySelector(focus).focus();
      const send = (more) => {
        const at = { bubbles: true, cancelable: true, clientX: x, clientY: y };
        document.elementFromPoint(x, y).dispatchEvent(new WheelEvent("wheel", { ...at, ...more }));
      };
      await frame();
      const begun = performance.now();
      let [last, worst] = [begun, 0];
      for (let i = 0; i < count; i++) {
        const there = i < count / 2 ? 1 : -1;
        send(zoom ? { deltaY: -60 * there, ctrlKey: zoom === "ctrl" } : { deltaX: 40 * there });
        await frame();
        const now = performance.now();
        worst = Math.max(worst, now - last);
        last = now;
      }
      return { fps: Math.round((count * 10_000) / (last - begun)) / 10, worst_ms: Math.round(worst) };
    },
    [options, FRAMES],
  );

/** Zooms in from the complete run, scrolls there, and scrolls again closer up. */
async function moved(page, { x, y, zoom, focus }) {
  const zoomed = await wheel(page, { x, y, zoom, focus });
  const whole = await wheel(page, { x, y });
  for (let step = 0; step < 12; step++) {
    await page.evaluate(([x, y, ctrlKey]) => {
      document.elementFromPoint(x, y).dispatchEvent(new WheelEvent("wheel", { bubbles: true, cancelable: true, clientX: x, clientY: y, deltaY: -120, ctrlKey }));
    }, [x, y, zoom === "ctrl"]);
  }
  const closer = await wheel(page, { x, y });
  const closerZoom = await wheel(page, { x, y, zoom });
  const worst = Math.max(...[zoomed, whole, closer, closerZoom].map((it) => it.worst_ms));
  return { zoom_fps: zoomed.fps, pan_fps: whole.fps, close_zoom_fps: closerZoom.fps, close_pan_fps: closer.fps, worst_ms: worst };
}

const middle = async (locator) => {
  await locator.scrollIntoViewIfNeeded();
  const box = await locator.boundingBox();
  return { x: Math.round(box.x + box.width / 2), y: Math.round(box.y + box.height / 2) };
};

const SUBJECTS = {
  async ticktax(page) {
    await page.goto(pathToFileURL(file).href);
    await page.waitForSelector("#timeline-zoom[data-drawn]", { timeout: PATIENCE });
    const open_ms = Number(await page.locator("#timeline-zoom").getAttribute("data-drawn"));
    const at = await middle(page.locator(".timeline-stage"));
    return { open_ms, bytes: statSync(file).size, ...(await moved(page, { ...at, zoom: "ctrl", focus: ".timeline-stage" })) };
  },
  async speedscope(page, { scope }) {
    const begun = Date.now();
    await page.goto(scope.url, { waitUntil: "commit", timeout: PATIENCE });
    await page.getByText("CPU 0").first().waitFor({ timeout: PATIENCE });
    if (process.env.SHOT) await page.screenshot({ path: process.env.SHOT });
    const open_ms = Date.now() - begun;
    const size = page.viewportSize();
    return { open_ms, bytes: scope.bytes, ...(await moved(page, { x: size.width / 2, y: size.height / 2, zoom: "ctrl" })) };
  },
};
for (const [name, { script, draw }] of Object.entries(LIBRARIES)) {
  const path = join(dirname(new URL(import.meta.url).pathname), "node_modules", script);
  SUBJECTS[name] = async (page, { list }, few) => {
    await page.setContent('<!doctype html><div id="place" style="width:1200px;height:500px"></div>');
    const source = readFileSync(path, "utf8");
    await page.addScriptTag({ content: source });
    await page.addScriptTag({ content: `globalThis.spans = ${list}.slice(0, ${few ?? Infinity});` });
    const patience = new Promise((_, reject) => setTimeout(() => reject(new Error(`not drawn after ${PATIENCE / 1000} s`)), PATIENCE));
    const open_ms = Math.round(await Promise.race([page.evaluate(draw), patience]));
    const at = await middle(page.locator("#place"));
    const motion = await Promise.race([moved(page, { ...at, zoom: "plain" }), patience]);
    return { open_ms, bytes: source.length, ...motion };
  };
}

const program = PROGRAMS.find((path) => path && existsSync(path));
const folder = mkdtempSync(join(tmpdir(), "ticktax-timeline-"));
const cpus = spansOf(readFileSync(file, "utf8"));
const given = {
  scope: names.includes("speedscope") ? speedscope(cpus, folder) : null,
  list: names.some((name) => name.split("@")[0] in LIBRARIES)
    ? JSON.stringify(cpus.flatMap(({ cpu, spans }) => spans.map((span) => [...span, cpu])))
    : "",
};
for (let round = 0; round < Number(rounds); round++) {
  for (const wanted of names) {
    const [name, few] = wanted.split("@");
    const browser = await chromium.launch({
      executablePath: program,
      args: ["--no-sandbox", "--disable-gpu", "--enable-unsafe-swiftshader", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--allow-file-access-from-files"],
    });
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    let found;
    try {
      found = await SUBJECTS[name](page, given, few);
    } catch (error) {
      found = { failed: error.message.split("\n")[0] };
    }
    const spans = Number(few ?? cpus.reduce((sum, it) => sum + it.spans.length, 0));
    console.log(JSON.stringify({ name, spans, ...found }));
    await Promise.race([browser.close(), new Promise((resolve) => setTimeout(resolve, 5_000))]);
  }
}
rmSync(folder, { recursive: true });
process.exit(0);
