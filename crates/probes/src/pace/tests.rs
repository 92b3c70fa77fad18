//! Tests the paced loop on this machine. The tests pass no matter how busy the machine is.

use std::time::Duration;

use ticktax_model::Nanos;
use ticktax_model::pace::{Frame, PaceRule, SleepMethod};

use super::{PaceProbe, PaceSettings};
use crate::{ProbeError, SchedulingPolicy, cpus};

fn settings(sleep: SleepMethod, rule: PaceRule) -> PaceSettings {
    PaceSettings {
        cpu: cpus::allowed().iter().last().unwrap(),
        policy: SchedulingPolicy::Other,
        period: Nanos::from_millis(2),
        work: Nanos::from_micros(100),
        sleep,
        rule,
        ring_capacity: 1 << 12,
    }
}

#[test]
fn frames_follow_the_rule_and_never_start_early() {
    for sleep in SleepMethod::ALL {
        for rule in PaceRule::ALL {
            let settings = settings(sleep, rule);
            let mut probe = PaceProbe::start(&settings).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            let mut frames: Vec<Frame> = Vec::new();
            probe.drain(|frame| frames.push(frame));
            let report = probe.stop(|frame| frames.push(frame)).unwrap();
            assert_eq!((report.error, report.frames_lost), (None, 0));
            assert_eq!(frames.len() as u64, report.frames);
            for frame in &frames {
                assert!(frame.began >= frame.due && frame.cpu >= settings.work);
                assert!(frame.ended - frame.began >= frame.cpu - Nanos::from_micros(1));
            }
            for pair in frames.windows(2) {
                let from = match rule {
                    PaceRule::Fixed => pair[0].ended,
                    PaceRule::Remaining => pair[0].began,
                    PaceRule::Deadline => pair[0].slot(settings.period),
                };
                assert_eq!(pair[1].due, from + settings.period, "{sleep} {rule}");
            }
            assert_eq!(report.margin.is_some(), sleep == SleepMethod::Hybrid);
            assert!(report.cpu_time >= frames.iter().map(|frame| frame.cpu).sum());
        }
    }
}

#[test]
fn a_loop_with_a_length_ends_on_its_own() {
    let settings = settings(SleepMethod::Nanosleep, PaceRule::Deadline);
    let length = Nanos::from_millis(21);
    let mut probe = PaceProbe::prepare(&settings).unwrap();
    probe.end_after(length);
    probe.begin();
    while probe.is_running() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut frames: Vec<Frame> = Vec::new();
    let report = probe.stop(|frame| frames.push(frame)).unwrap();
    let begin = report.started - settings.period;
    let end = begin + length;
    assert!(frames.iter().all(|frame| frame.due < end), "{frames:?}");
    let last = frames.last().map_or(end, |frame| frame.ended.max(end));
    assert_eq!((report.ended, report.elapsed), (last, last - begin));
    assert_eq!(report.error, None);
}

#[test]
fn impossible_settings_are_refused() {
    let good = settings(SleepMethod::Nanosleep, PaceRule::Deadline);
    let long = PaceSettings {
        work: Nanos::from_millis(3),
        ..good
    };
    let error = PaceProbe::start(&long).unwrap_err();
    assert_eq!(
        error.to_string(),
        "3.00 ms of work does not fit in a frame of 2.00 ms: choose less work or a lower rate"
    );
    for period in [Nanos(0), Nanos(-5), Nanos(19_999), Nanos::from_secs(2)] {
        let error = PaceProbe::start(&PaceSettings { period, ..good }).unwrap_err();
        assert!(matches!(error, ProbeError::Interval { .. }), "{error}");
    }
    let cpu = ticktax_model::Cpu(8_000);
    let error = PaceProbe::start(&PaceSettings { cpu, ..good }).unwrap_err();
    assert!(matches!(error, ProbeError::NotOnline { .. }), "{error}");
}
