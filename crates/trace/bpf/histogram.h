/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Lengths by buckets, as crates/model/src/histogram.rs has them.
 */
#ifndef TICKTAX_HISTOGRAM_H
#define TICKTAX_HISTOGRAM_H

#include "kernel.h"
#include "record.h"

/* How many bits are set: without a branch, see bucket(). Hacker's Delight, 5-1. */
static __always_inline __u32 bits_set(__u64 word)
{
	word -= (word >> 1) & 0x5555555555555555ULL;
	word = (word & 0x3333333333333333ULL) + ((word >> 2) & 0x3333333333333333ULL);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (word * 0x0101010101010101ULL) >> 56;
}

/* The highest bit, by the product of all bits up to it and a de Bruijn sequence (Leiserson, Prokop and Randall, 1998). */
static const __u8 highest_bit[64] = {
	0,  47, 1,  56, 48, 27, 2,  60, 57, 49, 41, 37, 28, 16, 3,  61, 54, 58, 35, 52, 50, 42,
	21, 44, 38, 32, 29, 23, 17, 11, 4,  62, 46, 55, 26, 59, 40, 36, 15, 53, 34, 51, 20, 43,
	31, 22, 10, 45, 25, 39, 14, 33, 19, 30, 9,  24, 13, 18, 8,  12, 7,  6,  5,  63,
};

/*
 * The bucket of a log-linear histogram with four steps an octave; crates/model/src/histogram.rs. Hardly
 * a branch: the verifier follows each of them to the end of the program.
 */
static __always_inline __u32 bucket(__u64 value)
{
	__u64 below = value;
	__u32 octave, index;

	if (value < 4)
		return value;
	below |= below >> 1;
	below |= below >> 2;
	below |= below >> 4;
	below |= below >> 8;
	below |= below >> 16;
	below |= below >> 32;
	octave = highest_bit[below * 0x03f79d71b4cb0a89ULL >> 58];
	index = (octave - 1) * 4 + ((value >> ((octave - 2) & 63)) & 3);
	return index < HISTOGRAM_BUCKETS ? index : HISTOGRAM_BUCKETS - 1;
}

#endif
