//! Tests the spin probe on this machine. The tests pass no matter how busy the machine is.

use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use ticktax_model::{Cpu, CpuList, Nanos};

use super::{SpinProbe, SpinSettings, require_survivable};
use crate::clock::{Clock, CounterSource, now};
use crate::{ProbeError, SchedulingPolicy, cpus};

fn untrusted() -> Clock {
    Clock::calibrate_under(tempfile::tempdir().unwrap().path())
}

#[test]
fn gaps_are_ordered_and_at_least_the_threshold() {
    for clock in [Clock::calibrate(), untrusted()] {
        let cpus = cpus::allowed();
        let mut probe = SpinProbe::start(&clock, &cpus, SpinSettings::default()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let mut gaps = Vec::new();
        probe.drain(|cpu, gap| gaps.push((cpu, gap)));
        let reports = probe.stop(|cpu, gap| gaps.push((cpu, gap)));
        assert_eq!(
            reports.iter().map(|report| report.cpu).collect::<CpuList>(),
            cpus
        );
        for report in reports {
            assert_eq!(report.error, None);
            assert_eq!(report.policy.granted, SchedulingPolicy::Idle);
            assert!(report.threshold.0 > 0);
            let cpu_gaps: Vec<_> = gaps.iter().filter(|(cpu, _)| *cpu == report.cpu).collect();
            assert_eq!(cpu_gaps.len() as u64, report.gaps - report.gaps_dropped);
            assert!(
                cpu_gaps
                    .windows(2)
                    .all(|pair| pair[0].1.end_counter <= pair[1].1.start_counter)
            );
            for (_, gap) in &cpu_gaps {
                assert!(gap.start_counter >= report.started_counter);
                assert!(gap.end_counter <= report.ended_counter);
                // The threshold may have been rounded up by 1 ns.
                let length = clock.to_nanos(gap.end_counter - gap.start_counter);
                assert!(length + Nanos(1) >= report.threshold, "{length}");
            }
        }
    }
}

#[test]
fn a_probe_ends_at_the_set_time() {
    let clock = Clock::calibrate();
    let mut alignment = clock.alignment();
    let cpus = cpus::allowed();
    let mut probe = SpinProbe::prepare(&clock, &cpus, SpinSettings::default()).unwrap();
    let end = now() + Nanos::from_millis(50);
    probe.end_at(end);
    probe.begin();
    std::thread::sleep(Duration::from_millis(300));
    let mut gaps = Vec::new();
    let reports = probe.stop(|cpu, gap| gaps.push((cpu, gap)));
    assert!(alignment.push(clock.anchor()));
    let soon = end + Nanos::from_millis(1);
    for report in reports {
        let cpu_gaps = gaps.iter().filter(|(cpu, _)| *cpu == report.cpu);
        let first_beyond = cpu_gaps
            .map(|(_, gap)| [gap.start_counter, gap.end_counter])
            .map(|times| times.map(|time| alignment.to_monotonic(time)))
            .find(|&[_, to]| to > soon);
        // The last reading must be on time. Two exceptions are allowed: the thread was preempted
        // just before the end, or it started late.
        let begin = alignment.to_monotonic(report.started_counter);
        if let Some([from, _]) = first_beyond {
            assert!(from < soon, "{from} {end}");
        } else {
            let ended = alignment.to_monotonic(report.ended_counter);
            assert!(ended <= soon.max(begin), "{begin} {ended} {end}");
        }
    }
}

#[test]
fn gaps_dropped_by_a_full_ring_are_counted() {
    let clock = Clock::calibrate();
    let cpu = cpus::allowed().iter().next().unwrap();
    let settings = SpinSettings {
        ring_capacity: 16,
        ..SpinSettings::default()
    };
    let probe = SpinProbe::start(&clock, &[cpu].into_iter().collect(), settings).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let mut handed_over = 0;
    let reports = probe.stop(|_, _| handed_over += 1);
    assert!(handed_over <= 16);
    assert_eq!(reports[0].gaps - reports[0].gaps_dropped, handed_over);
    assert_eq!(
        reports[0].gaps_dropped == 0,
        reports[0].time_dropped == Nanos::ZERO
    );
}

#[test]
fn the_requested_threshold_is_used_unless_the_loop_is_slower() {
    let clock = Clock::calibrate();
    let cpu: CpuList = cpus::allowed().iter().take(1).collect();
    for (asked, exact) in [(Nanos::from_millis(900), true), (Nanos(0), false)] {
        let settings = SpinSettings {
            threshold: Some(asked),
            ..SpinSettings::default()
        };
        let probe = SpinProbe::start(&clock, &cpu, settings).unwrap();
        let report = &probe.stop(|_, _| ())[0];
        assert!(report.threshold > asked - Nanos(1), "{}", report.threshold);
        assert!(
            !exact || report.threshold <= asked + Nanos(100),
            "{}",
            report.threshold
        );
    }
}

#[test]
fn a_moved_thread_reports_it_and_ends() {
    let cpus: Vec<Cpu> = cpus::allowed().iter().collect();
    let [first, second, ..] = cpus[..] else {
        return;
    };
    let only: CpuList = [first].into_iter().collect();
    let probe = SpinProbe::start(&Clock::calibrate(), &only, SpinSettings::default()).unwrap();
    let (_, tid) = probe.threads().next().unwrap();
    let mut elsewhere = CpuSet::new();
    elsewhere.set(second.index()).unwrap();
    sched_setaffinity(Pid::from_raw(tid), &elsewhere).unwrap();
    let report = &probe.stop(|_, _| ())[0];
    assert_eq!(
        report.error,
        Some(ProbeError::Moved {
            cpu: first,
            to: second
        })
    );
}

#[test]
fn a_missing_cpu_is_refused() {
    let cpus = [Cpu(0), Cpu(8000)].into_iter().collect();
    let error = SpinProbe::start(&untrusted(), &cpus, SpinSettings::default()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("CPU 8000 is not online: choose from 0"),
        "{text}"
    );
}

#[test]
fn settings_out_of_range_are_refused() {
    let (clock, cpus) = (untrusted(), cpus::allowed());
    let policy = SchedulingPolicy::Fifo(100);
    let priority = SpinSettings {
        policy,
        ..SpinSettings::default()
    };
    let ring = SpinSettings {
        ring_capacity: 0,
        ..SpinSettings::default()
    };
    let error = |settings| SpinProbe::start(&clock, &cpus, settings).unwrap_err();
    assert_eq!(error(priority), ProbeError::Priority { priority: 100 });
    assert!(matches!(
        error(ring),
        ProbeError::RingCapacity { capacity: 0, .. }
    ));
}

#[test]
fn a_real_time_spin_on_all_cpus_needs_throttling() {
    let list = |text: &str| text.parse::<CpuList>().unwrap();
    let (all, fifo) = (list("0-3"), SchedulingPolicy::Fifo(50));
    let starves = require_survivable(fifo, &all, &all, true).unwrap_err();
    assert_eq!(
        starves,
        ProbeError::WouldStarve {
            online: all.clone()
        }
    );
    for (policy, cpus, unthrottled) in [
        (fifo, "0-3", false),
        (fifo, "1-3", true),
        (SchedulingPolicy::Idle, "0-3", true),
    ] {
        assert_eq!(
            require_survivable(policy, &list(cpus), &all, unthrottled),
            Ok(())
        );
    }
}

#[test]
fn an_untrusted_counter_falls_back_to_monotonic() {
    if cfg!(target_arch = "x86_64") {
        assert_eq!(untrusted().source(), CounterSource::Monotonic);
    }
}
