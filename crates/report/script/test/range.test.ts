import assert from "node:assert/strict";
import { test } from "node:test";
import { length, ofHash, pan, point, SHORTEST, tick, ticks, toHash, within, zoom } from "../src/range";

const whole = { from: 0, to: 20e9 };

test("a zoom keeps what is under the pointer where it was", () => {
  const range = { from: 5e9, to: 9e9 };
  const closer = zoom(whole, range, 6e9, 0.5);
  assert.equal(closer.to - closer.from, 2e9);
  assert.equal((6e9 - closer.from) / 2e9, 0.25);
});

test("nothing leaves the recording or gets shorter than can be shown", () => {
  assert.deepEqual(zoom(whole, whole, 3e9, 4), whole);
  const closest = zoom(whole, { from: 1e9, to: 1e9 + 1_500 }, 1e9 + 700, 0.01);
  assert.equal(Math.round(closest.to - closest.from), SHORTEST);
  assert.deepEqual(pan(whole, { from: 19e9, to: 20e9 }, 5e9), { from: 19e9, to: 20e9 });
  assert.deepEqual(within(whole, { from: -5, to: 30e9 }), whole);
  assert.deepEqual(within(whole, { from: 100, to: 200 }), { from: 0, to: SHORTEST });
});

test("a link reads back, and anything else is none", () => {
  const link = toHash({ from: 17_812_000_000.4, to: 17_890_000_000 }, 1);
  assert.equal(link, "#timeline=17812000000,17890000000,1");
  assert.deepEqual(ofHash(link), { from: 17_812_000_000, to: 17_890_000_000, cpu: 1 });
  assert.deepEqual(ofHash("#timeline=5,9"), { from: 5, to: 9, cpu: null });
  for (const other of ["", "#timeline", "#timeline=9,5,0", "#timeline=1e3,5", "#timeline=1,2,x", "#timeline=1,2,3,4"]) {
    assert.equal(ofHash(other), null, other);
  }
});

test("times have the digits that they need", () => {
  assert.equal(length(70_200_000), "70.2\u00a0ms");
  assert.equal(length(1_000), "1.00\u00a0µs");
  assert.equal(length(999), "999\u00a0ns");
  assert.equal(length(0), "0\u00a0ns");
  assert.equal(point(17_812_345_678, 1_000), "17.812345678\u00a0s");
  assert.equal(point(17_812_345_678, 20e9), "17.812\u00a0s");
  assert.equal(tick(17_812_000_000, 1e6), "17.812");
});

test("ticks are round, and apart", () => {
  const { step, at } = ticks({ from: 5_030_034_000, to: 5_030_234_000 }, 10);
  assert.equal(step, 20_000);
  assert.equal(at[0], 5_030_040_000);
  assert.equal(at.length, 10);
});
