/* SPDX-License-Identifier: (MIT OR Apache-2.0) OR GPL-2.0 */
/*
 * Histogram buckets for lengths, the same as in crates/model/src/histogram.rs.
 */
#ifndef TICKTAX_HISTOGRAM_H
#define TICKTAX_HISTOGRAM_H

#include "kernel.h"
#include "record.h"

/* Returns the number of set bits, computed without a branch. Hacker's Delight, 5-1. */
static __always_inline __u32 bits_set(__u64 word)
{
	word -= (word >> 1) & 0x5555555555555555ULL;
	word = (word & 0x3333333333333333ULL) + ((word >> 2) & 0x3333333333333333ULL);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	return (word * 0x0101010101010101ULL) >> 56;
}

/* Buckets for lengths below 256. */
static const __u8 bucket_of_short[256] = {
	0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 12, 12, 13, 13, 13, 13, 14, 14,
	14, 14, 15, 15, 15, 15, 16, 16, 16, 16, 16, 16, 16, 16, 17, 17, 17, 17, 17, 17, 17, 17, 18,
	18, 18, 18, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 19, 20, 20, 20, 20, 20, 20, 20, 20,
	20, 20, 20, 20, 20, 20, 20, 20, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21, 21,
	21, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22, 22, 23, 23, 23, 23, 23, 23,
	23, 23, 23, 23, 23, 23, 23, 23, 23, 23, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24,
	24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 25, 25, 25, 25,
	25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25, 25,
	25, 25, 25, 25, 25, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26,
	26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 26, 27, 27, 27, 27, 27, 27, 27, 27, 27,
	27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27, 27,
};

/* Bits to shift per step of the search. The three highest bits of the length must remain. */
#define BUCKET_BITS 6

/*
 * Returns the bucket of a length in a log-linear histogram with four steps per octave
 * (crates/model/src/histogram.rs). A shift by six bits is six octaves. Most lengths at a switch are
 * between 1 us and 1 ms, and need three comparisons. Each comparison also gives the verifier an
 * upper limit.
 */
static __always_inline __u32 bucket(__u64 value)
{
	__u32 shift, index;

	if (value < 1 << 20)
		shift = value < 1 << 14 ? (value < 1 << 8 ? 0 : BUCKET_BITS) : 2 * BUCKET_BITS;
	else if (value < 1ULL << 32)
		shift = value < 1 << 26 ? 3 * BUCKET_BITS : 4 * BUCKET_BITS;
	else
		shift = 5 * BUCKET_BITS;
	value >>= shift;
	if (unlikely(value > 255))
		return HISTOGRAM_BUCKETS - 1;
	index = bucket_of_short[value] + 4 * shift;
	return index < HISTOGRAM_BUCKETS ? index : HISTOGRAM_BUCKETS - 1;
}

#endif
