// Opens pages in Chromium and prints a line for each problem on a page: `node check.mjs CHECK
// FILE...`. `node check.mjs available` exits with 0 if everything that the checks need is
// available.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { launch, program } from "./chromium.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PHONE = { width: 390, height: 844 };
const DESK = { width: 1280, height: 900 };
/** The rules of axe-core that a page has to keep to. */
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];

const [check, ...files] = process.argv.slice(2);

/** Opens a file in a page of its own; what the browser says of it goes into `wrong`. */
async function open(browser, file, options, wrong) {
  const context = await browser.newContext({ viewport: DESK, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  // A busy machine may need far longer than Playwright's 30 s.
  page.setDefaultTimeout(120_000);
  const url = pathToFileURL(file).href;
  page.on("console", (message) => wrong.push(`the console says: ${message.text()}`));
  page.on("pageerror", (error) => wrong.push(`an error: ${error.message}`));
  page.on("request", (request) => {
    const wanted = request.url();
    if (wanted !== url && !wanted.startsWith("data:")) wrong.push(`it fetches ${wanted}`);
  });
  await page.goto(url, { waitUntil: "load" });
  return page;
}

const unfold = (page) =>
  page.evaluate(() => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });

/** Whether something is wider than the window, of what does not scroll by itself. */
const tooWide = (page) =>
  page.evaluate(() => {
    const root = document.documentElement;
    return root.scrollWidth > root.clientWidth ? `${root.scrollWidth} of ${root.clientWidth} px` : "";
  });

/**
 * Waits until the timeline is drawn. Returns a function that waits until `is` holds for the range
 * shown, for at most 1,000 checks, and then returns the range.
 */
async function drawn(page) {
  const root = page.locator("#timeline-zoom[data-drawn]");
  await root.waitFor();
  const shown = async () => {
    await nextFrame(page);
    const [from, to] = (await root.getAttribute("data-range")).split(",").map(Number);
    return { from, to, length: to - from };
  };
  return async (is = () => true) => {
    for (let check = 1; check < 1_000 && !is(await shown()); check++) await page.waitForTimeout(20);
    return shown();
  };
}

/** Waits until everything that the events so far have changed is drawn. */
const nextFrame = (page) =>
  page.evaluate(async () => {
    for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
  });

/** Waits for an announcement that matches. Returns the last one, whether it matches or not. */
async function announced(page, pattern) {
  const said = () => page.locator(".timeline-said").textContent();
  const words = async () => (await said()).replaceAll("\n", " ").replaceAll("\u00a0", " ");
  for (let check = 1; check < 1_000 && !pattern.test(await words()); check++) await page.waitForTimeout(20);
  return words();
}

/** Each of the longest times on a CPU is there under its link: who it was, when, and for how long. */
async function spansAreThere(page, range, wrong) {
  const rows = page.locator(".timeline-tables div:has(> h3:text('programs')) tbody tr");
  for (const row of await rows.all()) {
    const [at, long, cpu, who] = await row.locator("th, td").allInnerTexts();
    const [, from, to] = /=(-?\d+),(-?\d+),/.exec(await row.locator("a").getAttribute("href"));
    await row.locator("a").click();
    // The whole recording may start at the same moment, so wait for the length as well.
    const length = Number(to) - Number(from);
    const shown = await range((it) => it.from === Math.max(0, Number(from)) && Math.abs(it.length - length) <= 1);
    // A span at the end of the recording is not centred.
    const middle = (Number(at) * 1e9 + length / 4 - shown.from) / shown.length;
    const stage = page.locator(".timeline-stage");
    await stage.scrollIntoViewIfNeeded();
    const { height } = await stage.boundingBox();
    const left = 92;
    let said = "";
    const heights = Array.from({ length: Math.ceil((height - 52) / 12) }, (_, step) => height - 12 - 12 * step);
    // On a busy machine, the display may lag behind the pointer, so wait for more frames.
    for (const [frames, y] of [1, 4, 16, 64].flatMap((frames) => heights.map((y) => [frames, y]))) {
      if (said.includes(`CPU ${cpu}\n`)) break;
      // The page may still be scrolling.
      const box = await stage.boundingBox();
      await page.mouse.move(box.x + left + (box.width - left) * middle, box.y + y);
      said = await page.evaluate(async (frames) => {
        for (let frame = 0; frame < frames; frame++) await new Promise(requestAnimationFrame);
        const tip = document.querySelector(".timeline-tip");
        return tip.hidden ? "" : tip.textContent.replaceAll("\u00a0", " ");
      }, frames);
      if (!said.startsWith(who.slice(0, 40))) said = "";
    }
    const found = / ?at ([\d.]+) s: ([\d.]+ \S+)/.exec(said) ?? [];
    const isThere = Math.abs(Number(found[1]) - Number(at)) < 1e-6 && found[2]?.replace(",", "") === long.replaceAll("\u00a0", " ");
    if (!isThere) wrong.push(`the timeline does not show ${who.slice(0, 40)} at ${at} for ${long}: ${said} (shown: ${JSON.stringify(shown)}, asked: ${from} to ${to}, at ${middle}, ${JSON.stringify(await stage.boundingBox())})`);
  }
}

/** Without a script, the whole run is drawn. */
async function withoutScript(browser, file, wrong) {
  const page = await open(browser, file, { javaScriptEnabled: false }, wrong);
  const still = await page.locator("svg.timeline-plot").isVisible();
  if (!still || (await page.locator("#timeline-zoom").isVisible())) wrong.push("without a script the run is not drawn");
  await page.context().close();
}

/** A finger finds out what is under it, and two zoom. */
async function onTouch(browser, file, wrong) {
  const page = await open(browser, file, { viewport: PHONE, hasTouch: true }, wrong);
  const range = await drawn(page);
  const stage = page.locator(".timeline-stage");
  await stage.scrollIntoViewIfNeeded();
  const box = await stage.boundingBox();
  await page.touchscreen.tap(box.x + box.width / 2, box.y + box.height - 15);
  const said = await announced(page, /CPU \d/);
  if (!/CPU \d/.test(said)) wrong.push(`a tap finds nothing: ${said}`);
  const whole = await range();
  const touch = await page.context().newCDPSession(page);
  const y = box.y + box.height / 2;
  const fingers = (type, ...xs) =>
    touch.send("Input.dispatchTouchEvent", { type, touchPoints: xs.map((x, id) => ({ x: box.x + x, y, id })) });
  await fingers("touchStart", 150, 200);
  for (const apart of [10, 20, 30, 40]) await fingers("touchMove", 150 - apart, 200 + apart);
  await fingers("touchEnd");
  const pinched = await range((it) => it.length < whole.length);
  if (!(pinched.length < 0.6 * whole.length)) wrong.push(`a pinch does not zoom: ${JSON.stringify(pinched)}`);
  await page.context().close();
}

const CHECKS = {
  /** It shows the answer first, its links lead somewhere, both themes are there, names have done nothing. */
  async render(browser, file, wrong) {
    const grounds = [];
    for (const colorScheme of ["light", "dark"]) {
      const page = await open(browser, file, { colorScheme }, wrong);
      grounds.push(await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
      const seen = await page.evaluate(() => ({
        first: document.querySelector("main > section")?.id,
        answer: document.querySelector("#answer")?.innerText.trim().split("\n").length ?? 0,
        scripts: [...document.scripts].filter((it) => !/json|plain/.test(it.type)).length,
        timeline: document.querySelectorAll("#timeline-zoom").length,
        data: JSON.parse(document.getElementById("ticktax-document").textContent).document,
        pictures: document.querySelectorAll("img, iframe, object, embed, form, input, svg:not(.bar, .strip, .plot, .sample, .timeline-patterns)").length,
        hostile: "hostile" in window || document.title.includes("hostile"),
      }));
      if (seen.first !== "answer" || seen.answer < 1) wrong.push(`no answer first: ${JSON.stringify(seen)}`);
      if (seen.scripts !== seen.timeline || seen.pictures || seen.hostile || !seen.data) {
        wrong.push(`a name is more than text: ${JSON.stringify(seen)}`);
      }
      for (const link of await page.locator("nav a").all()) {
        await link.click();
        const hash = await page.evaluate(() => location.hash);
        const target = page.locator(`${hash} > h2`);
        await target.scrollIntoViewIfNeeded();
        if (hash.length < 2 || !(await target.isVisible())) wrong.push(`the link ${hash} leads nowhere`);
      }
      await page.context().close();
    }
    if (grounds[0] === grounds[1]) wrong.push(`light and dark look alike: ${grounds[0]}`);
  },

  /** Nothing in it is against what axe-core knows of WCAG 2.1 AA, in either theme, all of it unfolded. */
  async access(browser, file, wrong) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await open(browser, file, { colorScheme }, wrong);
      await unfold(page);
      await page.evaluate(AXE);
      const found = await page.evaluate(async (values) => {
        const { violations } = await axe.run(document, { runOnly: { type: "tag", values } });
        return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.length} times, as ${nodes[0].html}`);
      }, RULES);
      wrong.push(...found.map((it) => `${colorScheme}: ${it}`));
      await page.context().close();
    }
  },

  /** Nothing is cut off on a phone, and the keyboard gets to the links. */
  async phone(browser, file, wrong) {
    const page = await open(browser, file, { viewport: PHONE, hasTouch: true }, wrong);
    for (const folded of [true, false]) {
      if (!folded) await unfold(page);
      const wide = await tooWide(page);
      if (wide) wrong.push(`it is wider than a phone: ${wide}${folded ? "" : ", unfolded"}`);
    }
    let link = null;
    for (let stop = 0; stop < 40 && !link; stop++) {
      await page.keyboard.press("Tab");
      link = await page.evaluate(() => document.activeElement?.closest("nav a")?.getAttribute("href"));
    }
    if (link !== "#answer") wrong.push(`the keyboard does not get to the links: ${link}`);
    await page.context().close();
  },

  /** Its timeline, where it has one, is zoomed and moved by wheel, keys, fingers and links, down to single spans. */
  async timeline(browser, file, wrong) {
    if (!readFileSync(file, "utf8").includes('id="timeline-zoom"')) return;
    await withoutScript(browser, file, wrong);
    await onTouch(browser, file, wrong);
    const page = await open(browser, file, {}, wrong);
    const stage = page.locator(".timeline-stage");
    const range = await drawn(page);
    const whole = await range();
    const expect = (is, words, found) => is || wrong.push(`the timeline: ${words}: ${JSON.stringify(found)} of ${JSON.stringify(whole)}`);
    await stage.scrollIntoViewIfNeeded();
    const box = await stage.boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + 60);
    await page.mouse.wheel(0, -240);
    expect((await range()).length === whole.length, "the wheel zooms before it was clicked", await range());
    await stage.focus();
    await stage.scrollIntoViewIfNeeded();
    const now = await stage.boundingBox();
    await page.mouse.move(now.x + now.width / 2, now.y + 60);
    await page.mouse.wheel(0, -240);
    const wheeled = await range((it) => it.length < whole.length);
    expect(wheeled.length < 0.6 * whole.length && wheeled.from > whole.from, "the wheel does not zoom", wheeled);
    await page.mouse.down();
    await page.mouse.move(now.x + now.width / 2 - 200, now.y + 60, { steps: 4 });
    await page.mouse.up();
    const dragged = await range((it) => it.from > wheeled.from);
    expect(dragged.from > wheeled.from && Math.abs(dragged.length - wheeled.length) < 2, "dragging does not move", dragged);
    await page.keyboard.press("ArrowLeft");
    expect((await range((it) => it.from < dragged.from)).from < dragged.from, "the left arrow does not move", await range());
    await page.keyboard.press("Home");
    expect((await range((it) => it.length === whole.length)).length === whole.length, "Home is not the whole run", await range());
    for (let step = 0; step < 40; step++) await page.keyboard.press("+");
    const closest = await range((it) => it.length <= 1_000);
    expect(closest.length === 1_000, "it does not go down to a microsecond", closest);
    const rangeWords = await announced(page, /1.00 µs/);
    expect(/1.00 µs/.test(rangeWords), "the range is not announced", rangeWords);
    const ring = await stage.evaluate((it) => getComputedStyle(it).outlineStyle);
    expect(ring !== "none", "the focus is not seen", ring);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press(".");
    const span = / at [\d.]+ s: |no further interval/;
    const spanWords = await announced(page, span);
    expect(span.test(spanWords), "no span is read out", spanWords);
    await spansAreThere(page, range, wrong);
    await page.context().close();
  },

  /** A large one is opened, and drawn on the way down. */
  async large(browser, file, wrong) {
    const page = await open(browser, file, {}, wrong);
    const range = await drawn(page);
    await page.locator(".timeline-stage").focus();
    for (let step = 0; step < 30; step++) {
      const before = await range();
      await page.keyboard.press("+");
      await range((it) => it.length < before.length || it.length <= 1_000);
    }
    if ((await range()).length !== 1_000) wrong.push(`it stops at ${(await range()).length} ns`);
    await page.keyboard.press("Home");
    await spansAreThere(page, range, wrong);
    await page.context().close();
  },

  /** On paper are the answer and its sections, in black, and nothing beside the paper. */
  async print(browser, file, wrong) {
    const page = await open(browser, file, { colorScheme: "dark", viewport: { width: 718, height: 1000 } }, wrong);
    await page.emulateMedia({ media: "print" });
    const seen = await page.evaluate(() => ({
      ground: getComputedStyle(document.body).backgroundColor,
      answer: document.querySelector("#answer").checkVisibility(),
      zoom: document.querySelector("#timeline-zoom")?.checkVisibility() ?? false,
      still: document.querySelector("svg.timeline-plot")?.checkVisibility() ?? true,
      links: document.querySelector("nav").checkVisibility(),
    }));
    if (seen.ground !== "rgb(255, 255, 255)" || !seen.answer || seen.links || seen.zoom || !seen.still) wrong.push(JSON.stringify(seen));
    const wide = await tooWide(page);
    if (wide) wrong.push(`it is wider than A4: ${wide}`);
    const paper = await page.pdf({ format: "A4" });
    if (paper.length < 5_000) wrong.push(`${paper.length} bytes on paper`);
    await page.context().close();
  },
};

if (check === "available") process.exit(program ? 0 : 1);
const browser = await launch();
for (const file of files) {
  const wrong = [];
  try {
    await CHECKS[check](browser, file, wrong);
  } catch (error) {
    wrong.push(`${error.message.split("\n")[0]}`);
  }
  for (const line of new Set(wrong)) console.log(`${file.split("/").pop()}: ${line}`);
}
await browser.close();
