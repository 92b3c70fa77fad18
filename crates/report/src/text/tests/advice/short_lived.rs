//! Tests for the advice to start fewer short-lived processes.

use ticktax_model::Nanos;
use ticktax_model::advice::Advice;
use ticktax_model::statement::StartedProcesses;

use super::{advised, flat, flat_in};

fn short_lived() -> Advice {
    Advice::ShortLivedProcesses {
        started: StartedProcesses {
            name: "ls".to_owned(),
            count: 5_403,
            time: Nanos::from_millis(5_630),
            started_by: "sh".to_owned(),
            started_by_pid: 9260,
        },
        rate_hz: 900.4,
        share: 0.469,
        waits_share: None,
    }
}

#[test]
fn advice_on_short_lived_processes_names_their_parent() {
    let page = flat(&advised(vec![short_lived()]));
    assert!(
        page.contains(
            "Start fewer processes from sh (9260): it starts ls processes (900 per second), which \
             used 46.9 % of the CPU time."
        ),
        "{page}"
    );
    assert!(page.contains("$ pstree -asp 9260;"), "{page}");
    let elsewhere = flat_in(&advised(vec![short_lived()]), true);
    assert!(!elsewhere.contains('$'), "{elsewhere}");
}
