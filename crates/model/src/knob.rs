//! Knobs: settings of a live machine, their current values, and the results of restoring them.

mod proposal;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Nanos;

pub use proposal::KnobProposal;

/// The kind of object that a setting belongs to.
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
    /// All scopes.
    pub const ALL: [Self; 7] = [
        Self::Machine,
        Self::Cpu,
        Self::Irq,
        Self::Disk,
        Self::Task,
        Self::Cgroup,
        Self::Net,
    ];

    /// Returns the name of the scope, as used in documents.
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

/// Risk of changing a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KnobRisk {
    /// Read-only.
    ReadOnly,
    /// Changes affect only speed and latency.
    Safe,
    /// Some values can slow down or break other programs.
    Careful,
    /// Some values can hang the machine or lock the administrator out.
    Dangerous,
}

impl KnobRisk {
    /// Returns the name of the risk, as used in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Safe => "safe",
            Self::Careful => "careful",
            Self::Dangerous => "dangerous",
        }
    }
}

/// A list of settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobList {
    /// Word that the listed settings match; `None` if all are listed.
    pub search: Option<String>,
    /// Number of known settings, listed or not.
    pub total: u64,
    /// Settings, in the order of the documentation.
    pub knobs: Vec<KnobLine>,
}

/// One setting in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobLine {
    /// Name of the setting.
    pub id: String,
    /// Kind of object that the setting belongs to.
    pub scope: KnobScope,
    /// Risk of changing the setting.
    pub risk: KnobRisk,
    /// Effect of the setting.
    pub description: String,
}

/// Full description of one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobSheet {
    /// Name of the setting.
    pub id: String,
    /// Kind of object that the setting belongs to.
    pub scope: KnobScope,
    /// Where the kernel keeps the setting: a file, a system call or a boot parameter.
    pub location: String,
    /// Unit of the values; `None` if they have no unit.
    pub unit: Option<String>,
    /// Allowed values.
    pub values: String,
    /// Risk of changing the setting.
    pub risk: KnobRisk,
    /// Why changing the setting is risky; `None` if it is not.
    pub risk_reason: Option<String>,
    /// Effect of the setting.
    pub description: String,
    /// Benefits and costs of changing the setting.
    pub trade_offs: String,
    /// Kernels that provide the setting.
    pub kernels: String,
    /// Kernel documentation that describes the setting.
    pub source: String,
    /// Other settings that the kernel changes together with this one.
    pub also_changes: Vec<String>,
    /// Pause between changing the setting and measuring, in a trial.
    #[serde(rename = "settle_ns", default)]
    pub settle: Nanos,
}

/// The current values of one setting, for each object that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobReadings {
    /// Name of the setting.
    pub id: String,
    /// Unit of the values; `None` if they have no unit.
    pub unit: Option<String>,
    /// Current value for each queried object.
    pub readings: Vec<KnobReading>,
}

/// The current value of a setting for one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobReading {
    /// Object that the value belongs to.
    pub target: String,
    /// Current value; `None` if it could not be read.
    pub value: Option<String>,
    /// Why the value could not be read; `None` if it was read.
    pub problem: Option<String>,
}

/// Result of restoring the settings that a trial or another command changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoStatement {
    /// Journal file.
    pub journal: String,
    /// The command that changed the settings, if known.
    pub changed_by: Option<String>,
    /// Number of damaged lines that were skipped in the journal of changes.
    pub damaged_lines: u64,
    /// Path of a copy of the journal's unreadable end, which was removed from the journal; `None`
    /// if the journal was readable.
    pub damaged_copy: Option<String>,
    /// Settings that still had to be restored, with the results, in the order they were processed.
    pub settings: Vec<UndoneSetting>,
    /// Why the journal could not be written; `None` if it was written.
    pub journal_problem: Option<String>,
}

impl UndoStatement {
    /// Stores the error if writing the journal failed, unless there is an earlier error.
    pub fn keep_problem<T>(&mut self, noted: Result<T, impl ToString>) {
        if let Err(error) = noted {
            self.journal_problem
                .get_or_insert_with(|| error.to_string());
        }
    }

    /// Returns whether every setting has been dealt with and the journal was updated, so another
    /// `undo` would do nothing.
    pub fn is_complete(&self) -> bool {
        let mut settings = self.settings.iter();
        settings.all(|setting| !setting.outcome.is_pending()) && self.journal_problem.is_none()
    }

    /// Returns whether every change is known to have been undone. This is `false` if journal lines
    /// were damaged, because they may have contained further settings.
    pub fn is_certain(&self) -> bool {
        self.is_complete() && self.damaged_lines == 0
    }
}

/// A changed setting, and the result of restoring it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoneSetting {
    /// Name of the setting.
    pub id: String,
    /// Object that the setting belongs to.
    pub target: String,
    /// Value of the setting before it was changed.
    pub original: String,
    /// Value in effect just before the setting was restored; `None` if it could not be read.
    pub found: Option<String>,
    /// Result of restoring the setting.
    pub outcome: UndoOutcome,
    /// Why the setting could not be restored; `None` if it was.
    pub problem: Option<String>,
}

/// The result of restoring a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UndoOutcome {
    /// The original value was restored.
    Restored,
    /// The original value was restored. It is unknown whether ticktax had set the value it
    /// replaced, because ticktax was killed before it could read that value back.
    RestoredUnread,
    /// The setting already had its original value.
    #[serde(alias = "already")]
    AlreadyRestored,
    /// The setting no longer existed, because it ended with the process that held it.
    Released,
    /// Another program had changed the setting in the meantime, so it was left alone.
    #[serde(alias = "foreign")]
    ChangedByOther,
    /// The object that the setting belongs to no longer exists.
    Gone,
    /// The machine had rebooted in the meantime, which reset the setting.
    Rebooted,
    /// The CPU that the setting belongs to is offline. The setting can be restored once the CPU is
    /// online again.
    Offline,
    /// The setting could not be restored.
    Failed,
}

impl UndoOutcome {
    /// All results.
    pub const ALL: [Self; 9] = [
        Self::Restored,
        Self::RestoredUnread,
        Self::AlreadyRestored,
        Self::Released,
        Self::ChangedByOther,
        Self::Gone,
        Self::Rebooted,
        Self::Offline,
        Self::Failed,
    ];

    /// Returns whether the setting still has to be restored.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Offline | Self::Failed)
    }
}
