//! Knobs: settings of a live machine, their current values, and the result of restoring them.

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

    /// Name of the scope.
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

/// Damage that changing a setting can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KnobRisk {
    /// Read-only.
    ReadOnly,
    /// Changes affect only speed and latency.
    Safe,
    /// Some values can slow down other programs or break them.
    Careful,
    /// Some values can hang the machine or lock out its administrator.
    Dangerous,
}

impl KnobRisk {
    /// Name of the risk.
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
    /// Search word, if only matching settings are listed.
    pub search: Option<String>,
    /// Total number of known settings.
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
    /// Damage that changing the setting can cause.
    pub risk: KnobRisk,
    /// Effect of the setting.
    pub description: String,
}

/// Full description of a setting.
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
    /// Damage that changing the setting can cause.
    pub risk: KnobRisk,
    /// Why the setting is risky, if it is.
    pub risk_reason: Option<String>,
    /// Effect of the setting.
    pub description: String,
    /// Benefits and costs of changing the setting.
    pub trade_offs: String,
    /// Kernels that provide the setting.
    pub kernels: String,
    /// Kernel documentation that describes the setting.
    pub source: String,
    /// Settings that the kernel changes together with this one.
    pub also_changes: Vec<String>,
    /// Time that a trial waits after a change before it starts to measure.
    #[serde(rename = "settle_ns", default)]
    pub settle: Nanos,
}

/// The current values of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobReadings {
    /// Name of the setting.
    pub id: String,
    /// Unit of the values; `None` if they have no unit.
    pub unit: Option<String>,
    /// Value for each object that was queried.
    pub readings: Vec<KnobReading>,
}

/// The current value of a setting for one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobReading {
    /// Object that was queried.
    pub target: String,
    /// Current value; `None` if it could not be read.
    pub value: Option<String>,
    /// Why the value could not be read.
    pub problem: Option<String>,
}

/// The result of restoring settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoStatement {
    /// Journal file.
    pub journal: String,
    /// The command that changed the settings, if known.
    pub changed_by: Option<String>,
    /// Number of damaged journal lines, which were skipped.
    pub damaged_lines: u64,
    /// Copy of the unreadable end of the journal, which was cut off.
    pub damaged_copy: Option<String>,
    /// Settings that had not been restored yet, in the order in which they were processed.
    pub settings: Vec<UndoneSetting>,
    /// Why the journal could not be written, if that failed.
    pub journal_problem: Option<String>,
}

impl UndoStatement {
    /// Stores the error of a failed journal write, unless an earlier error is already stored.
    pub fn keep_problem<T>(&mut self, noted: Result<T, impl ToString>) {
        if let Err(error) = noted {
            self.journal_problem
                .get_or_insert_with(|| error.to_string());
        }
    }

    /// Whether every setting is settled, so that another undo would find nothing to do.
    pub fn is_complete(&self) -> bool {
        let mut settings = self.settings.iter();
        settings.all(|setting| !setting.outcome.is_pending()) && self.journal_problem.is_none()
    }

    /// Whether every change is known to have been restored. Settings in damaged journal lines are
    /// unknown.
    pub fn is_certain(&self) -> bool {
        self.is_complete() && self.damaged_lines == 0
    }
}

/// A changed setting and the result of restoring it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndoneSetting {
    /// Name of the setting.
    pub id: String,
    /// Object that the setting belongs to.
    pub target: String,
    /// Value before the change.
    pub original: String,
    /// Value found when the setting was restored; `None` if it could not be read.
    pub found: Option<String>,
    /// Result of restoring the setting.
    pub outcome: UndoOutcome,
    /// Why the setting could not be restored.
    pub problem: Option<String>,
}

/// The result of restoring a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UndoOutcome {
    /// The original value was restored.
    Restored,
    /// The original value was restored. The value that it replaced was never read back, because the
    /// invocation that wrote it was killed.
    RestoredUnread,
    /// The setting already had its original value.
    #[serde(alias = "already")]
    AlreadyRestored,
    /// The setting vanished when the process that held it exited.
    Released,
    /// Another program has changed the setting in the meantime, so it was left alone.
    #[serde(alias = "foreign")]
    ChangedByOther,
    /// The object, and the setting with it, no longer exists.
    Gone,
    /// The machine has rebooted in the meantime, which reset the setting.
    Rebooted,
    /// The setting's CPU is offline. The setting can be restored once the CPU is online.
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

    /// Whether the setting still has to be restored.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Offline | Self::Failed)
    }
}
