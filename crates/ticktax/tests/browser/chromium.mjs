// Runs Chromium without a window, and opens pages from files in it.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const PROGRAMS = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** The browser that is used; `undefined` where there is none. */
export const program = PROGRAMS.find((path) => path && existsSync(path));

/** Starts it. It asks nobody anything of its own accord. */
export const launch = () =>
  chromium.launch({
    executablePath: program,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync"],
  });
