// Opens pages in Chromium and prints a line for each thing that is wrong with one: `node check.mjs CHECK FILE...`.
// `node check.mjs available` ends with 0 where there is all that this takes.

import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PROGRAMS = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const PHONE = { width: 390, height: 844 };
const DESK = { width: 1280, height: 900 };
/** The rules of axe-core that a page has to keep to. */
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];

const program = PROGRAMS.find((path) => path && existsSync(path));
const [check, ...files] = process.argv.slice(2);

/** Opens a file in a page of its own; what the browser says of it goes into `wrong`. */
async function open(browser, file, options, wrong) {
  const context = await browser.newContext({ viewport: DESK, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
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
        scripts: [...document.scripts].filter((it) => it.type !== "application/json").length,
        data: JSON.parse(document.getElementById("ticktax-document").textContent).document,
        pictures: document.querySelectorAll("img, iframe, object, embed, form, input, svg:not(.bar, .interval, .plot, .sample)").length,
        hostile: "hostile" in window || document.title.includes("hostile"),
      }));
      if (seen.first !== "answer" || seen.answer < 1) wrong.push(`no answer first: ${JSON.stringify(seen)}`);
      if (seen.scripts || seen.pictures || seen.hostile || !seen.data) {
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

  /** On paper are the answer and its sections, in black, and nothing beside the paper. */
  async print(browser, file, wrong) {
    const page = await open(browser, file, { colorScheme: "dark", viewport: { width: 718, height: 1000 } }, wrong);
    await page.emulateMedia({ media: "print" });
    const seen = await page.evaluate(() => ({
      ground: getComputedStyle(document.body).backgroundColor,
      answer: document.querySelector("#answer").checkVisibility(),
      links: document.querySelector("nav").checkVisibility(),
    }));
    if (seen.ground !== "rgb(255, 255, 255)" || !seen.answer || seen.links) wrong.push(JSON.stringify(seen));
    const wide = await tooWide(page);
    if (wide) wrong.push(`it is wider than A4: ${wide}`);
    const paper = await page.pdf({ format: "A4" });
    if (paper.length < 5_000) wrong.push(`${paper.length} bytes on paper`);
    await page.context().close();
  },
};

if (check === "available") process.exit(program ? 0 : 1);
const browser = await chromium.launch({
  executablePath: program,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
});
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
