//! Preliminary figures, available while a recording is still running.

use crate::Nanos;
use crate::statement::Account;

/// Sums over all rows received so far. A row arrives only when its interval ends, so the sums lack
/// intervals in progress. They also lack corrections that move time from one account to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Glance {
    /// All accounts, unordered.
    pub accounts: Vec<Account>,
    /// The analysed program.
    pub program: Option<ProgramGlance>,
}

/// Sums over all threads of the watched program, from the rows received so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramGlance {
    /// Total time that the threads were runnable.
    pub wanted: Nanos,
    /// The part of `wanted` that the threads spent waiting for a CPU.
    pub waited: Nanos,
    /// Longest single wait for a CPU.
    pub longest: Nanos,
    /// Programs that ran while the threads waited, each with the waiting time it caused, largest
    /// first.
    pub behind: Vec<(String, Nanos)>,
}
