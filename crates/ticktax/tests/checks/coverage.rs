//! Checks the coverage of a recording.

use libtest_mimic::Failed;
use ticktax_model::limitation::{HookMissing, Limitation};
use ticktax_model::recording::{Header, Level, World};

use super::check;

/// Checks that in a lab guest, the tracer watches every kernel entry, the kernel accepts all of the
/// tracer's programs, and no event is lost.
pub(crate) fn is_complete(header: &Header) -> Result<(), Failed> {
    let coverage = &header.coverage;
    let why = || format!("{:?}", coverage.limitations);
    check(header.world == World::Lab, || format!("{:?}", header.world))?;
    check(
        header.level == Level::Kernel && coverage.every_entry_watched,
        why,
    )?;
    check(coverage.events_lost() == 0, why)?;
    let is_refused = |limitation: &Limitation| {
        let Limitation::HookMissing { reason, .. } = limitation else {
            return false;
        };
        matches!(reason, HookMissing::Refused(_))
    };
    check(!coverage.limitations.iter().any(is_refused), why)
}
