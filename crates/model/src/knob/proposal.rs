//! Settings that findings and advice propose to test.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A setting and a value worth testing against the current value with `ticktax try`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnobProposal {
    /// Name of the setting.
    pub knob: String,
    /// Value to test.
    pub value: String,
    /// Number of the interrupt that the setting belongs to; `None` if it does not belong to an
    /// interrupt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irq: Option<u32>,
    /// Whether some values of this setting can hang the machine, in which case the user must
    /// confirm the trial.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dangerous: bool,
}

impl KnobProposal {
    /// Settings that can be proposed, each with a flag that marks dangerous ones. The full registry
    /// is in `ticktax-knobs`. The analysis of recordings must not depend on that crate, because it
    /// changes machines. A test there checks this list.
    pub const KNOBS: [(&str, bool); 37] = [
        ("cgroup.cpu_burst", false),
        ("cgroup.cpu_idle", false),
        ("cgroup.cpu_shares", false),
        ("cgroup.cpu_weight", false),
        ("clock.source", false),
        ("cpu.governor", false),
        ("cpu.max_freq", false),
        ("irq.affinity", false),
        ("kernel.hung_task_timeout_secs", false),
        ("kernel.nmi_watchdog", false),
        ("kernel.numa_balancing", false),
        ("kernel.sched_autogroup_enabled", false),
        ("kernel.sched_cfs_bandwidth_slice_us", false),
        ("kernel.sched_rr_timeslice_ms", false),
        ("kernel.sched_rt_runtime_us", true),
        ("kernel.soft_watchdog", false),
        ("kernel.split_lock_mitigate", false),
        ("kernel.timer_migration", false),
        ("kernel.watchdog", false),
        ("kernel.watchdog_thresh", false),
        ("ksm.run", false),
        ("netdev.budget", false),
        ("netdev.budget_usecs", false),
        ("proc.nice", false),
        ("thp.enabled", false),
        ("vm.compaction_proactiveness", false),
        ("vm.dirty_expire_centisecs", false),
        ("vm.dirty_writeback_centisecs", false),
        ("vm.min_free_kbytes", true),
        ("vm.page-cluster", false),
        ("vm.stat_interval", false),
        ("vm.swappiness", false),
        ("vm.vfs_cache_pressure", false),
        ("vm.watermark_scale_factor", false),
        ("vm.zone_reclaim_mode", false),
        ("net.core.somaxconn", false),
        ("net.ipv4.tcp_congestion_control", false),
    ];

    /// Returns a proposal to set `knob` to `value`; `None` if the setting is not in
    /// [`KnobProposal::KNOBS`].
    pub fn new(knob: &str, value: impl fmt::Display) -> Option<Self> {
        let known = Self::KNOBS.iter().find(|(id, _)| *id == knob);
        known.map(|&(id, dangerous)| Self {
            knob: id.to_owned(),
            value: value.to_string(),
            irq: None,
            dangerous,
        })
    }

    /// Returns the same proposal for the setting of interrupt `irq`.
    #[must_use]
    pub fn for_irq(self, irq: u32) -> Self {
        Self {
            irq: Some(irq),
            ..self
        }
    }
}

/// Formats the proposal as a shell argument for `ticktax try`, such as
/// `cpu.governor=now,performance`.
impl fmt::Display for KnobProposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { knob, value, .. } = self;
        // The value contains a comma, so separate the two values with a semicolon instead. The
        // argument needs quotes, because the shell would split it at the semicolon.
        if value.contains(',') {
            write!(f, "'{knob}=now;{value}'")?;
        } else {
            write!(f, "{knob}=now,{value}")?;
        }
        if let Some(irq) = self.irq {
            write!(f, " --irq {irq}")?;
        }
        if self.dangerous {
            f.write_str(" --yes")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::KnobProposal;

    #[test]
    fn proposals_print_as_shell_arguments() {
        let words =
            |knob, value| KnobProposal::new(knob, value).map(|proposal| proposal.to_string());
        let expected = "kernel.sched_rt_runtime_us=now,-1 --yes";
        assert_eq!(
            words("kernel.sched_rt_runtime_us", "-1").as_deref(),
            Some(expected)
        );
        assert_eq!(words("kernel.randomize_va_space", "0"), None);
        let cpus = KnobProposal::new("irq.affinity", "0-1,3")
            .map(|proposal| proposal.for_irq(24).to_string());
        assert_eq!(cpus.as_deref(), Some("'irq.affinity=now;0-1,3' --irq 24"));
    }
}
