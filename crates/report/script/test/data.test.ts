import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateRawSync } from "node:zlib";
import { between, levels, reach, read, spanAt, sums, wakeUpOf, type Meta } from "../src/data";
import { Numbers, unpack } from "../src/numbers";
import { laneAt, laneOf, rowAt, rows } from "../src/layout";
import { spanWords } from "../src/words";

/** Packs as the export does. */
class Pack {
  readonly bytes: number[] = [];
  number(number: number): this {
    for (; number >= 128; number = Math.floor(number / 128)) this.bytes.push((number % 128) + 128);
    this.bytes.push(number);
    return this;
  }
  signed(...numbers: number[]): this {
    for (const it of numbers) this.number(it < 0 ? -2 * it - 1 : 2 * it);
    return this;
  }
  steps(...numbers: number[]): this {
    numbers.forEach((it, i) => this.signed(it - (numbers[i - 1] ?? 0)));
    return this;
  }
  numbers(...numbers: number[]): this {
    for (const it of numbers) this.number(it);
    return this;
  }
}

const meta: Meta = {
  from: 0,
  to: 400,
  columns: { begin: 0, width: 100, count: 4 },
  classes: [
    { name: "game", lane: 0, look: "p0" },
    { name: "interrupts", lane: 2, look: "irq" },
  ],
  sources: [["game (1)", 0], ["local_timer", 1]],
  cpus: [{ cpu: 3, spans: 3 }],
  lanes: [{ name: "game (1)", waits: 1 }],
  reasons: ["woken"],
  wakeups: 1,
  marks: [],
  floor: 0,
};

/** A run from 20 to 220 that an interrupt cuts into, and one from 300 on. */
function recording() {
  const pack = new Pack()
    .numbers(80, 90, 20, 50)
    .numbers(0, 10, 0, 0)
    .numbers(1, 1, 0, 1)
    .steps(20, 150, 300)
    .signed(200, 10, 50)
    .signed(10, 0, 0)
    .numbers(0, 1, 0)
    .steps(290)
    .signed(10)
    .numbers(0)
    .steps(300)
    .signed(10)
    .numbers(1, 0, 0, 0);
  return read(meta, Uint8Array.from(pack.bytes));
}

test("numbers are read as they were packed", async () => {
  const pack = new Pack().numbers(0, 127, 300, 2 ** 40).signed(-1, 5).steps(7, 3);
  const packed = deflateRawSync(Uint8Array.from(pack.bytes)).toString("base64");
  const numbers = new Numbers(await unpack(packed));
  assert.deepEqual([numbers.next(), numbers.next(), numbers.next(), numbers.next()], [0, 127, 300, 2 ** 40]);
  assert.deepEqual([numbers.signed(), numbers.signed()], [-1, 5]);
  assert.deepEqual([...numbers.steps(2)], [7, 3]);
  assert.throws(() => numbers.next(), /too soon/);
});

test("what lies across the begin of a range is in it", () => {
  const [cpu] = recording().cpus;
  assert.deepEqual([...cpu!.reach], [220, 220, 350]);
  assert.deepEqual(between(cpu!, 200, 210), [0, 2]);
  assert.deepEqual(between(cpu!, 230, 290), [2, 2]);
  assert.deepEqual([...reach(Float64Array.of(1, 2), Float64Array.of(9, 1))], [10, 10]);
});

test("each level has the sums of the one below", () => {
  const all = levels(Float64Array.of(1, 10, 2, 20, 4, 40), 2);
  assert.deepEqual(all.map((it) => [...it]), [[1, 10, 2, 20, 4, 40], [3, 30, 4, 40], [7, 70]]);
});

test("sums are those of whole columns", () => {
  const timeline = recording();
  const { by, length } = sums(timeline, timeline.cpus[0]!, 110, 290);
  assert.deepEqual([[...by], length], [[110, 10, 1], 200]);
});

test("a span is found by its lane, and with what woke it", () => {
  const timeline = recording();
  const cpu = timeline.cpus[0]!;
  assert.equal(spanAt(timeline, cpu, 0, 155, 1), 0);
  assert.equal(spanAt(timeline, cpu, 2, 155, 1), 1);
  assert.equal(spanAt(timeline, cpu, 2, 162, 5), 1);
  assert.equal(spanAt(timeline, cpu, 2, 190, 5), -1);
  assert.equal(wakeUpOf(timeline, 0, 0, 300), 0);
  assert.equal(wakeUpOf(timeline, 0, 0, 20), -1);
  assert.match(spanWords(timeline, 0, 0), /^game \(1\)\ngame, CPU 3\nat 0.000000020.s: 200.ns \(190.ns without interruptions\)$/);
  assert.match(spanWords(timeline, 0, 2), /woken by local_timer on CPU 3, 10.ns before it ran$/);
});

test("rows and lanes are where they are drawn", () => {
  const { rows: all, height } = rows(recording());
  const cpu = all[1]!;
  assert.deepEqual(all.map((row) => row.kind), ["waits", "cpu"]);
  assert.equal(rowAt(all, cpu.y + 3), cpu);
  assert.equal(rowAt(all, height + 1), null);
  for (const place of [0, 1, 2]) {
    const [top, tall] = laneOf(cpu, place);
    assert.equal(laneAt(cpu, top + tall / 2), place);
  }
});
