//! What is known while a recording goes on: a statement's first numbers, before it can be made.

use crate::Nanos;
use crate::statement::Account;

/// The sums of the rows so far. Rows come when their intervals end, so that what still runs is not in
/// them, and nothing is moved between accounts yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Glance {
    /// Every account, in no order.
    pub accounts: Vec<Account>,
    /// The program whose time is asked for.
    pub program: Option<ProgramGlance>,
}

/// What the threads of a followed program did so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramGlance {
    /// The time for which they were able to run, added up.
    pub wanted: Nanos,
    /// What of it they waited for a CPU.
    pub waited: Nanos,
    /// The longest of these waits.
    pub longest: Nanos,
    /// Who had the CPU that they waited for, by program, the costliest first.
    pub behind: Vec<(String, Nanos)>,
}
