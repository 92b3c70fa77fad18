//! Checks the gaps found by a probe.

use libtest_mimic::Failed;
use ticktax_model::limitation::Limitation;
use ticktax_model::statement::Statement;

use super::check;

pub(crate) fn are_explained(statement: &Statement) -> Result<(), Failed> {
    let gaps = statement.gaps.as_ref().ok_or("no probe ran")?;
    let parts = gaps.long;
    let sum = parts.named + parts.entry_exit + parts.hypervisor_or_firmware + parts.unexplained;
    check(sum == parts.time, || format!("{parts:?}"))?;
    // If the kernel did not report a switch, nobody knows which thread some of the time belongs to.
    let missed = statement.coverage.limitations.iter().any(|limitation| {
        matches!(
            limitation,
            Limitation::SwitchesMissed { .. } | Limitation::SwitchesUnreported { .. }
        )
    });
    let unexplained = parts.unexplained.0 as f64 / statement.balance.elapsed.0 as f64;
    let enough = if missed {
        unexplained < 0.05
    } else {
        parts.coverage() >= 0.99
    };
    check(parts.gaps.count > 0 && enough, || format!("{parts:?}"))
}
