// Decodes the numbers of a timeline. timeline/pack.rs encodes them as bytes, compresses the bytes
// with DEFLATE and writes the result in base64.

/**
 * Reads numbers from bytes. A number is stored in groups of 7 bits, lowest group first, like
 * LEB128.
 */
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

  /** Reads a signed number in zigzag encoding, in which the lowest bit is the sign. */
  signed(): number {
    const number = this.next();
    return number % 2 === 0 ? number / 2 : -(number + 1) / 2;
  }

  /** Reads `count` numbers, each of which is stored as its difference from the previous one. */
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

/** Decodes a base64 text and decompresses the bytes. */
export async function unpack(text: string): Promise<Uint8Array> {
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
