// Captures part of a page: `node shots.mjs PAGE SELECTOR WIDTH light|dark PICTURE`. Without a
// selector, captures the initial window. To stay small, pictures use only as many colours as text
// needs.

import { pathToFileURL } from "node:url";
import sharp from "sharp";
import { launch } from "../../crates/ticktax/tests/browser/chromium.mjs";

const [page, selector, width, colorScheme, picture] = process.argv.slice(2);
const browser = await launch();
const context = await browser.newContext({ viewport: { width: Number(width), height: 844 }, colorScheme });
const shown = await context.newPage();
await shown.goto(pathToFileURL(page).href, { waitUntil: "load" });
const part = selector ? shown.locator(selector).first() : shown;
await sharp(await part.screenshot())
  .png({ palette: true, colours: 64, effort: 10, compressionLevel: 9 })
  .toFile(picture);
await browser.close();
