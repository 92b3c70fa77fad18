//! Integer versions of real-valued formulas. They give the same results on every machine, so traces
//! are identical.

/// Narrows a product to its low 64 bits. Every product here fits, because times stay below 292
/// years.
#[expect(
    clippy::cast_possible_truncation,
    reason = "every product here is a time, and times fit in 63 bits"
)]
pub(crate) const fn narrow(wide: i128) -> i64 {
    wide as i64
}

/// Returns `value · numerator / denominator`, rounded down.
pub(crate) fn scale(value: i64, numerator: i64, denominator: i64) -> i64 {
    narrow((i128::from(value) * i128::from(numerator)).div_euclid(i128::from(denominator)))
}

/// The number 1 in fixed point, with 32 fraction bits.
pub(crate) const ONE: u64 = 1 << 32;
/// ln 2, with 32 fraction bits.
const LN_2: u64 = 2_977_044_472;

/// `2^-(2^-i)` for i from 1 to 32, with 32 fraction bits. Each entry is the square root of the
/// previous one.
const ROOTS: [u64; 32] = {
    let mut roots = [0; 32];
    let mut root = ONE / 2;
    let mut i = 0;
    while i < 32 {
        root = (root << 32).isqrt();
        roots[i] = root;
        i += 1;
    }
    roots
};

/// Computes e^(-`numerator`/`denominator`) with 32 fraction bits, for exponents of 0 and below. The
/// error is at most 2^-26.
pub(crate) fn exp_neg(numerator: i64, denominator: i64) -> u64 {
    let x = (i128::from(numerator.max(0)) << 32) / i128::from(denominator.max(1));
    // e^-x = 2^-y, with y = x / ln 2.
    let y = (x << 32) / i128::from(LN_2);
    let integer_part = y >> 32;
    if integer_part >= 32 {
        return 0;
    }
    let mut result = ONE;
    for (i, root) in ROOTS.iter().enumerate() {
        if (y >> (31 - i)) & 1 == 1 {
            result = (result * root) >> 32;
        }
    }
    result >> integer_part
}

/// Computes -ln(`u` / 2^32) with 32 fraction bits, for `u` from 1 to 2^32 - 1. The error is at most
/// 2^-18.
pub(crate) fn neg_ln(u: u32) -> u64 {
    let u = u64::from(u.max(1));
    let bits = u64::from(u.ilog2());
    // `u` is mantissa · 2^(bits - 31), with the mantissa in [2^31, 2^32).
    let mut mantissa = u << (31 - bits);
    let mut log = bits << 20;
    for i in (0..20).rev() {
        mantissa = (mantissa * mantissa) >> 31;
        if mantissa >= 1 << 32 {
            mantissa >>= 1;
            log += 1 << i;
        }
    }
    let neg_log2 = (32 << 20) - log;
    (neg_log2 * LN_2) >> 20
}

#[cfg(test)]
mod tests {
    use super::{ONE, exp_neg, neg_ln, scale};

    #[test]
    fn results_agree_with_floating_point() {
        for n in [0, 1, 10, 500, 999, 1000, 5000, 12345, 21000] {
            let exact = (-f64::from(n) / 1000.0).exp();
            let ours = exp_neg(i64::from(n), 1000) as f64 / ONE as f64;
            assert!(
                (exact - ours).abs() < 1.5e-8,
                "e^-{n}/1000: {ours} for {exact}"
            );
        }
        assert_eq!(exp_neg(1_000_000, 1), 0);
        for u in [1, 2, 3, 77, 65_536, 1 << 30, 3_000_000_000, u32::MAX] {
            let exact = -(f64::from(u) / ONE as f64).ln();
            let ours = neg_ln(u) as f64 / ONE as f64;
            assert!((exact - ours).abs() < 4e-6, "-ln {u}: {ours} for {exact}");
        }
    }

    #[test]
    fn scaling_rounds_down() {
        assert_eq!(scale(10, 2, 3), 6);
        assert_eq!(scale(-10, 2, 3), -7);
        assert_eq!(scale(i64::MAX, 7, 7), i64::MAX);
    }
}
