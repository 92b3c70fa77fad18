//! Pages about clocks.

use ticktax_model::Nanos;
use ticktax_model::timekeeping::{
    ClockLimitation, ClockSample, ClockSource, ClockStep, Discipline, Leap, Rtc, RtcDrift,
    RtcReading, RtcSetting, SourceSwitch, Timekeeping,
};

use super::page;

/// Returns the clocks of a machine that nobody disciplines and nobody changes.
fn calm() -> Timekeeping {
    let sample = |seconds: i64| ClockSample {
        raw: Nanos::from_secs(seconds),
        // 12.5 ppm.
        ahead: Nanos(seconds * 12_500),
        uncertainty: Nanos(40),
        offset: Nanos::ZERO,
        frequency_ppm: 12.5,
    };
    Timekeeping {
        watched: Nanos::from_secs(5),
        discipline: Discipline {
            is_synchronised: false,
            offset: Nanos::ZERO,
            frequency_ppm: 12.5,
            tick_us: 10_000,
            max_error: Nanos::from_secs(16),
            estimated_error: Nanos::from_secs(16),
            tai_offset_s: 0,
            leap: Leap::None,
        },
        source: ClockSource {
            current: "tsc".to_owned(),
            available: vec!["tsc".to_owned(), "hpet".to_owned()],
        },
        samples: vec![sample(0), sample(5)],
        steps: Vec::new(),
        switches: Vec::new(),
        rtcs: Vec::new(),
        limitations: Vec::new(),
    }
}

/// Returns the clocks of a machine on which everything changed.
fn changed() -> Timekeeping {
    let reading = |seconds: i64, offset_ms: i64| RtcReading {
        at: Nanos::from_secs(seconds),
        offset: Nanos::from_millis(offset_ms),
        uncertainty: Nanos::from_micros(600),
    };
    Timekeeping {
        discipline: Discipline {
            is_synchronised: true,
            offset: Nanos::from_micros(-250),
            tai_offset_s: 37,
            leap: Leap::Insert,
            ..calm().discipline
        },
        steps: vec![ClockStep {
            at: Nanos::from_secs(2),
            size: Nanos::from_millis(-250),
            uncertainty: Nanos(80),
        }],
        switches: vec![SourceSwitch {
            at: Nanos::from_secs(3),
            from: "tsc".to_owned(),
            to: "hpet".to_owned(),
        }],
        rtcs: vec![Rtc {
            name: "rtc0".to_owned(),
            driver: "rtc_cmos 00:04".to_owned(),
            sets_system_clock: true,
            readings: vec![reading(1, 40), reading(4, -20)],
            settings: vec![RtcSetting {
                after: Nanos::from_secs(1),
                before: Nanos::from_secs(4),
                change: Nanos::from_secs(2),
                uncertainty: Nanos::from_micros(1_200),
            }],
            drift: Some(RtcDrift {
                drift_ppm: -10.0,
                uncertainty_ppm: 0.5,
                span: Nanos::from_secs(7_200),
                readings: 9,
            }),
        }],
        limitations: vec![
            ClockLimitation::NoStepEvents,
            ClockLimitation::RtcUnreadable {
                name: "rtc1".to_owned(),
                why: "permission denied".to_owned(),
            },
            ClockLimitation::LogUnusable {
                path: "/var/lib/ticktax/clock/readings.jsonl".to_owned(),
                why: "permission denied".to_owned(),
            },
        ],
        ..calm()
    }
}

#[test]
fn page_of_calm_clocks() {
    insta::assert_snapshot!(page(calm()));
}

#[test]
fn page_of_changed_clocks() {
    insta::assert_snapshot!(page(changed()));
}

#[test]
fn a_drift_of_uncertain_direction_predicts_nothing() {
    let mut found = changed();
    for rtc in &mut found.rtcs {
        let uncertain = RtcDrift {
            drift_ppm: -0.2,
            ..rtc.drift.unwrap()
        };
        rtc.drift = Some(uncertain);
    }
    let text = page(found);
    assert!(
        text.contains("drifts by") && !text.contains("It will be"),
        "{text}"
    );
}
