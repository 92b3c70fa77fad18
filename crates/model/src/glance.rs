//! Preliminary figures, available while a recording is still running.

use crate::Nanos;
use crate::statement::Account;

/// Sums over the rows received so far. A row arrives only when its interval ends, so intervals in
/// progress are missing. Corrections that move time between accounts are not included yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Glance {
    /// All accounts, unordered.
    pub accounts: Vec<Account>,
    /// The analysed program.
    pub program: Option<ProgramGlance>,
}

/// Sums over the threads of the watched program so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramGlance {
    /// Total time in which the threads were runnable.
    pub wanted: Nanos,
    /// The part of `wanted` spent waiting for a CPU.
    pub waited: Nanos,
    /// Longest of these waits.
    pub longest: Nanos,
    /// Programs that ran during these waits, with the waiting that each caused, in descending
    /// order.
    pub behind: Vec<(String, Nanos)>,
}
