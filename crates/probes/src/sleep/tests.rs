//! Tests the sleep probe on this machine. The tests pass no matter how busy the machine is.

use std::time::Duration;

use ticktax_model::{Cpu, CpuList, Nanos};

use super::{SleepProbe, SleepSettings, Wakeup};
use crate::clock::now;
use crate::{ProbeError, SchedulingPolicy, cpus};

#[test]
fn wakeups_are_due_an_interval_apart_and_never_early() {
    let cpus = cpus::allowed();
    let settings = SleepSettings::default();
    let mut probe = SleepProbe::start(&cpus, settings).unwrap();
    let mut seen: Vec<(Cpu, Wakeup)> = Vec::new();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(2));
        probe.drain(|cpu, wakeup| seen.push((cpu, wakeup)));
    }
    let reports = probe.stop(|cpu, wakeup| seen.push((cpu, wakeup)));
    assert_eq!(
        reports.iter().map(|report| report.cpu).collect::<CpuList>(),
        cpus
    );
    for report in reports {
        assert_eq!((report.error, report.wakeups_dropped), (None, 0));
        assert_eq!(report.policy.granted, SchedulingPolicy::Other);
        assert!(report.timer_slack.is_some_and(|slack| slack.0 >= 0));
        let cpu_wakeups: Vec<Wakeup> = seen
            .iter()
            .filter(|(cpu, _)| *cpu == report.cpu)
            .map(|(_, wakeup)| *wakeup)
            .collect();
        assert_eq!(cpu_wakeups.len() as u64, report.wakeups);
        assert!(report.missed <= report.wakeups);
        assert!(cpu_wakeups.iter().all(|wakeup| wakeup.woke >= wakeup.due));
        assert!(
            cpu_wakeups
                .windows(2)
                .all(|pair| pair[1].due - pair[0].due == settings.interval)
        );
        assert!(
            cpu_wakeups
                .first()
                .is_none_or(|first| first.due == report.started)
        );
        assert!(
            cpu_wakeups
                .last()
                .is_none_or(|last| last.woke == report.ended)
        );
    }
}

#[test]
fn no_wakeup_is_reported_after_the_end() {
    let settings = SleepSettings::default();
    let mut probe = SleepProbe::prepare(&cpus::allowed(), settings).unwrap();
    let end = now() + Nanos::from_millis(30);
    probe.end_at(end);
    probe.begin();
    std::thread::sleep(Duration::from_millis(100));
    let mut seen: Vec<Wakeup> = Vec::new();
    for report in probe.stop(|_, wakeup| seen.push(wakeup)) {
        assert!(report.wakeups == 0 || report.ended <= end, "{report:?}");
    }
    let within = |wakeup: &Wakeup| wakeup.due <= wakeup.woke && wakeup.woke <= end;
    assert!(seen.iter().all(within), "{seen:?}");
}

#[test]
fn intervals_out_of_range_are_refused() {
    let settings = SleepSettings {
        interval: Nanos(0),
        ..SleepSettings::default()
    };
    let error = SleepProbe::start(&cpus::allowed(), settings).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid sleep interval 0 ns: choose 10.0 µs to 1.00 s"
    );
}

#[test]
fn an_empty_list_of_cpus_is_refused() {
    let error = SleepProbe::start(&CpuList::default(), SleepSettings::default()).unwrap_err();
    assert!(matches!(error, ProbeError::NoCpu { .. }), "{error}");
}
