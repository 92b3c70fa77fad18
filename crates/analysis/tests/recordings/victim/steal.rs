//! Tests statements that rely on the hypervisor's steal clock.

use ticktax_analysis::Auditor;
use ticktax_fixture::books;
use ticktax_model::machine::CpuTimes;
use ticktax_model::recording::Header;
use ticktax_model::victim::Target;
use ticktax_model::{Nanos, SourceTable};

use crate::victim::fixture::followed;

const BEGIN: i64 = 1_000_000_000;

/// Builds the header of a guest whose steal clock showed `before` ns when the recording started and
/// `after` ns when it ended.
fn guest(before: i64, after: i64) -> Header {
    let mut header = followed(Target::Process, "game", Some(10), BEGIN);
    header.machine.hypervisor = Some("VMware".to_owned());
    header.cpus = vec![books(0, BEGIN, 2 * BEGIN)];
    for (counters, steal) in [(&mut header.before, before), (&mut header.after, after)] {
        let times = CpuTimes {
            steal: Nanos(steal),
            ..CpuTimes::default()
        };
        counters.cpu_times = [(0, times)].into();
    }
    header
}

fn stolen(header: &Header) -> Option<Nanos> {
    let auditor = Auditor::books().following(Nanos(BEGIN - 1), None);
    let statement = auditor.finish(header, &SourceTable::default(), 1);
    statement.victim.unwrap().stolen
}

/// `/proc/stat` has a steal column even if the hypervisor never fills it in.
#[test]
fn a_steal_clock_that_never_ran_gives_no_figure() {
    assert_eq!(stolen(&guest(0, 0)), None);
    assert_eq!(stolen(&guest(5, 5)), Some(Nanos::ZERO));
    assert_eq!(stolen(&guest(0, 7)), Some(Nanos(7)));
    let mut metal = guest(0, 0);
    metal.machine.hypervisor = None;
    assert_eq!(stolen(&metal), Some(Nanos::ZERO));
}
