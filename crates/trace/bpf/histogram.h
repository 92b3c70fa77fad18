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
	octave = bits_set(below) - 1;
	index = (octave - 1) * 4 + ((value >> ((octave - 2) & 63)) & 3);
	return index < HISTOGRAM_BUCKETS ? index : HISTOGRAM_BUCKETS - 1;
}

#endif
