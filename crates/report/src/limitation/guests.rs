//! Describes limitations about virtual machines.

use ticktax_model::limitation::Limitation;

use super::{Words, sentences, several};

/// Describes a limitation about virtual machines.
pub(super) fn guests(limitation: &Limitation) -> Words {
    match limitation {
        Limitation::GuestsNotTraced { machines } => sentences(
            format!(
                "{} not traced, because KVM was loaded after the recording had started.",
                several(*machines, "virtual machine was", "virtual machines were")
            ),
            "The report does not show what virtual machines cost. Record again.",
        ),
        Limitation::GuestsNeedRights { machines } => sentences(
            format!(
                "{} not traced, which requires root.",
                several(
                    *machines,
                    "process that seems to run a virtual machine was",
                    "processes that seem to run virtual machines were"
                )
            ),
            "The report does not show what virtual machines cost. Audit as root.",
        ),
        Limitation::VcpusNotCounted { events } => sentences(
            format!(
                "{} not counted, because the tracer's table of vCPUs was full.",
                several(*events, "event of a vCPU was", "events of vCPUs were")
            ),
            "The report lacks the activities and exits of some vCPUs.",
        ),
        _ => None,
    }
}
