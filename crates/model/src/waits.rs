//! Who waited for a CPU behind whom, of all threads of a machine.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::real_time::RealTimeHeld;
use crate::{Kind, Nanos};

/// How long threads were able to run and did not, and who had their CPU meanwhile. Times of several
/// threads are added up, so they may be longer than the recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitStatement {
    /// All waiting.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// How many waits.
    pub count: u64,
    /// Whether waits of threads that were preempted are among them. Where events were lost, only those
    /// that began with a wake-up are.
    pub preempted: bool,
    /// The programs that waited longest, all processes of one name together.
    pub programs: Vec<WaitingProgram>,
    /// How many more programs waited.
    pub programs_left_out: u64,
    /// Whom others waited for, the costliest first: each process, and each thread of the kernel, by
    /// itself.
    pub behind: Vec<WaitedFor>,
    /// Real-time threads that the kernel kept from a CPU on which nobody went before them. Where the CPU idled
    /// meanwhile, that is no waiting for a CPU, and in none of the times above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub real_time: Vec<RealTimeHeld>,
}

/// A program that waited for a CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingProgram {
    /// Its name.
    pub name: String,
    /// Its processes.
    pub pids: Vec<i32>,
    /// Those of them that had ended when the recording did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<i32>,
    /// For how long, of all its threads.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
    /// How often.
    pub count: u64,
    /// The longest.
    #[serde(rename = "max_ns")]
    pub max: Nanos,
    /// When that began, after the recording's begin.
    #[serde(rename = "max_at_ns")]
    pub max_at: Nanos,
    /// Who had the CPU meanwhile, the one with the most first; not every one.
    pub behind: Vec<WaitedFor>,
}

/// Who ran while others waited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitedFor {
    /// A program, or a thread of the kernel.
    pub name: String,
    /// What the CPU was doing.
    pub kind: Kind,
    /// Its processes, where it is a program.
    pub pids: Vec<i32>,
    /// For how long others waited while it ran, added up.
    #[serde(rename = "time_ns")]
    pub time: Nanos,
}
