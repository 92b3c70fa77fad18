// Reads what the export packed: columns of numbers, deflated, in base 64.

/** Numbers of a column one after the other, in groups of 7 bits. */
export class Numbers {
  private at = 0;

  constructor(private readonly bytes: Uint8Array) {}

  next(): number {
    let number = 0;
    let scale = 1;
    for (;;) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) throw new Error("the numbers of the timeline end too soon");
      number += (byte & 0x7f) * scale;
      if (byte < 0x80) return number;
      scale *= 128;
    }
  }

  /** One whose lowest bit is its sign. */
  signed(): number {
    const number = this.next();
    return number % 2 === 0 ? number / 2 : -(number + 1) / 2;
  }

  /** `count` numbers of which the steps are written down. */
  steps(count: number): Float64Array {
    const all = new Float64Array(count);
    let now = 0;
    for (let i = 0; i < count; i++) all[i] = now += this.signed();
    return all;
  }

  signeds(count: number): Float64Array {
    const all = new Float64Array(count);
    for (let i = 0; i < count; i++) all[i] = this.signed();
    return all;
  }

  places(count: number): Uint32Array {
    const all = new Uint32Array(count);
    for (let i = 0; i < count; i++) all[i] = this.next();
    return all;
  }
}

/** The bytes behind a text. */
export async function unpack(text: string): Promise<Uint8Array> {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
