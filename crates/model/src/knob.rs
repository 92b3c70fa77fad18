//! Settings of a live machine: what they are, what they are set to, and what was put back.

mod proposal;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

pub use proposal::KnobProposal;

/// What a setting is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KnobScope {
    /// The whole machine.
    Machine,
    /// A CPU.
    Cpu,
    /// An interrupt line.
    Irq,
    /// A block device.
    Disk,
    /// A thread.
    Task,
    /// A cgroup.
    Cgroup,
    /// A network namespace.
    Net,
}

impl KnobScope {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Machine,
        Self::Cpu,
        Self::Irq,
        Self::Disk,
        Self::Task,
        Self::Cgroup,
        Self::Net,
    ];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Cpu => "cpu",
            Self::Irq => "irq",
            Self::Disk => "disk",
            Self::Task => "task",
            Self::Cgroup => "cgroup",
            Self::Net => "net",
        }
    }
}

/// What may go wrong when a setting is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KnobRisk {
    /// It can only be read.
    ReadOnly,
    /// Nothing but speed and latency change.
    Safe,
    /// A value can slow other programs down, or fail them.
    Careful,
    /// A value can hang the machine, or keep its administrator out.
    Dangerous,
}

impl KnobRisk {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Safe => "safe",
            Self::Careful => "careful",
            Self::Dangerous => "dangerous",
        }
    }
}

/// Some settings, a line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobList {
    /// The word that they have in common, where only such were asked for.
    pub of: Option<String>,
    /// How many there are in all.
    pub known: u64,
    /// Each, in the order of the documentation.
    pub knobs: Vec<KnobLine>,
}

/// A setting in a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobLine {
    /// Its name.
    pub id: String,
    /// What it is of.
    pub scope: KnobScope,
    /// What may go wrong.
    pub risk: KnobRisk,
    /// What it sets.
    pub about: String,
}

/// All there is to say about a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobSheet {
    /// Its name.
    pub id: String,
    /// What it is of.
    pub scope: KnobScope,
    /// Where the kernel has it: a file, a system call, a boot parameter.
    pub place: String,
    /// The unit of its values; `None` where they have none.
    pub unit: Option<String>,
    /// What its values may be.
    pub values: String,
    /// What may go wrong.
    pub risk: KnobRisk,
    /// Why, where something may.
    pub risk_reason: Option<String>,
    /// What it sets.
    pub about: String,
    /// What is gained by changing it, and what is lost.
    pub trades: String,
    /// Which kernels have it.
    pub kernels: String,
    /// Where the kernel's documentation describes it.
    pub source: String,
    /// Settings that the kernel changes along with this one.
    pub also_changes: Vec<String>,
    /// How long a trial waits after changing it before anything is measured.
    #[serde(rename = "settle_ns", default)]
    pub settle: Nanos,
}

/// What a setting is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobReadings {
    /// Its name.
    pub id: String,
    /// The unit of its values; `None` where they have none.
    pub unit: Option<String>,
    /// Of each thing that was asked about.
    pub readings: Vec<KnobReading>,
}

/// What a setting of one thing is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobReading {
    /// Of what.
    pub target: String,
    /// Its value; `None` where it could not be read.
    pub value: Option<String>,
    /// Why it could not be read.
    pub problem: Option<String>,
}

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoStatement {
    /// The journal's file.
    pub journal: String,
    /// Who had changed the settings, where that is known.
    pub changed_by: Option<String>,
    /// Lines of the journal that are damaged, and were passed over.
    pub damaged_lines: u64,
    /// Copy of the journal's unreadable end, which was cut off.
    pub damaged_copy: Option<String>,
    /// Each setting that was still to be put back, in the order in which it was looked at.
    pub settings: Vec<UndoneSetting>,
    /// Why the journal could not be written, where it could not.
    pub journal_problem: Option<String>,
}

impl UndoStatement {
    /// Keeps why the journal could not be written; the first reason only.
    pub fn keep_problem<T>(&mut self, noted: Result<T, impl ToString>) {
        if let Err(error) = noted {
            self.journal_problem
                .get_or_insert_with(|| error.to_string());
        }
    }

    /// Whether nothing is left that another undo could put back.
    pub fn is_complete(&self) -> bool {
        let mut settings = self.settings.iter();
        settings.all(|it| !it.outcome.is_pending()) && self.journal_problem.is_none()
    }

    /// Whether everything that was changed is known to be put back: what stood in damaged lines is not.
    pub fn is_certain(&self) -> bool {
        self.is_complete() && self.damaged_lines == 0
    }
}

/// What became of a setting that was changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoneSetting {
    /// Which.
    pub id: String,
    /// Of what.
    pub target: String,
    /// What it had been before it was changed.
    pub original: String,
    /// What it was now; `None` where it could not be read.
    pub found: Option<String>,
    /// What became of it.
    pub outcome: UndoOutcome,
    /// Why, where it could not be put back.
    pub problem: Option<String>,
}

/// What became of a setting that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UndoOutcome {
    /// It has its old value again.
    Restored,
    /// The same, although the value found was never read back: the run that wrote it was killed before.
    RestoredUnread,
    /// It had its old value already.
    Already,
    /// It ended with the process that held it.
    Released,
    /// Somebody else changed it since: it was left alone.
    Foreign,
    /// What it was of is gone, and so is the setting.
    Gone,
    /// The machine was started anew since, which resets it.
    Rebooted,
    /// Its CPU is offline: it is to be put back once that is online.
    Offline,
    /// It could not be put back.
    Failed,
}

impl UndoOutcome {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::Restored,
        Self::RestoredUnread,
        Self::Already,
        Self::Released,
        Self::Foreign,
        Self::Gone,
        Self::Rebooted,
        Self::Offline,
        Self::Failed,
    ];

    /// Whether it is still to be put back.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Offline | Self::Failed)
    }
}
