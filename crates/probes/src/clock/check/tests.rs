//! Tests the verdicts on counters, using made-up kernel files and readings.

use ticktax_model::Nanos;

use super::{
    Bracket, CounterCheck, CounterSource, CounterVerdict, Distrust, is_invariant, judge,
    measure_rate, nominal,
};

const CPUINFO: &str = "processor\t: 0\nflags\t\t: fpu tsc constant_tsc nonstop_tsc avx2\n\
                       bugs\t\t: spectre_v1\nbogomips\t: 5192.28\n";

fn trusted_check() -> CounterCheck {
    CounterCheck {
        source: CounterSource::Tsc,
        invariant: true,
        frequency_hz: 2_596_144_000,
        nominal_hz: nominal(CounterSource::Tsc, CPUINFO),
        drift_ppm: 0.1,
        drift_margin_ppm: 1.0,
        comparisons: 64,
        backwards_steps: 0,
        clocksource: "tsc".to_owned(),
        verdict: CounterVerdict::Trusted,
    }
}

#[test]
fn the_kernels_flags_and_frequency_are_read() {
    assert!(is_invariant(CounterSource::Tsc, CPUINFO));
    assert!(!is_invariant(
        CounterSource::Tsc,
        &CPUINFO.replace("nonstop_tsc", "")
    ));
    assert!(!is_invariant(
        CounterSource::Tsc,
        &CPUINFO.replace("constant_tsc", "art")
    ));
    assert!(is_invariant(CounterSource::Cntvct, ""));
    assert_eq!(nominal(CounterSource::Tsc, CPUINFO), Some(2_596_140_000));
    assert_eq!(nominal(CounterSource::Cntvct, CPUINFO), None);
    assert_eq!(nominal(CounterSource::Tsc, "bogomips\t: lots\n"), None);
}

#[test]
fn a_sound_counter_is_trusted_under_any_chosen_clock_source() {
    assert_eq!(
        judge(&trusted_check(), "tsc hpet acpi_pm"),
        CounterVerdict::Trusted
    );
    let by_hand = CounterCheck {
        clocksource: "hpet".to_owned(),
        ..trusted_check()
    };
    assert_eq!(judge(&by_hand, "hpet tsc"), CounterVerdict::Trusted);
    let silent = CounterCheck {
        clocksource: "unknown".to_owned(),
        ..trusted_check()
    };
    assert_eq!(judge(&silent, ""), CounterVerdict::Trusted);
}

#[test]
fn each_fault_makes_the_counter_untrusted() {
    let hpet = || "hpet".to_owned();
    let faults = [
        (
            CounterCheck {
                invariant: false,
                ..trusted_check()
            },
            Distrust::NotInvariant,
        ),
        (
            CounterCheck {
                clocksource: hpet(),
                ..trusted_check()
            },
            Distrust::RefusedByKernel {
                clocksource: hpet(),
            },
        ),
        (
            CounterCheck {
                backwards_steps: 3,
                ..trusted_check()
            },
            Distrust::StepsBackwards {
                steps: 3,
                comparisons: 64,
            },
        ),
        (
            CounterCheck {
                drift_ppm: -140.0,
                ..trusted_check()
            },
            Distrust::Drifts { ppm: -140.0 },
        ),
    ];
    for (check, reason) in faults {
        assert_eq!(
            judge(&check, "hpet acpi_pm"),
            CounterVerdict::Untrusted(vec![reason])
        );
    }
    let off = CounterCheck {
        frequency_hz: 2_700_000_000,
        ..trusted_check()
    };
    let CounterVerdict::Untrusted(reasons) = judge(&off, "tsc") else {
        panic!("trusted")
    };
    let [Distrust::OffNominal { deviation_ppm: ppm }] = reasons[..] else {
        panic!("{reasons:?}")
    };
    assert!((ppm - 40_006.0).abs() < 1.0, "{ppm}");
    let none = CounterCheck {
        source: CounterSource::Monotonic,
        ..trusted_check()
    };
    assert_eq!(
        judge(&none, "tsc"),
        CounterVerdict::Untrusted(vec![Distrust::NoCounter])
    );
}

#[test]
fn frequency_and_drift_are_measured_from_three_brackets() {
    let bracket = |counter: u64, nanos| Bracket {
        before: counter - 20,
        after: counter + 20,
        monotonic: Nanos(nanos),
    };
    let mut check = trusted_check();
    // The counter runs at 2 GHz in the first 25 ms and at 2.001 GHz in the next 25 ms, which is a
    // drift of 500 ppm.
    let readings = [
        bracket(1_000, 0),
        bracket(50_001_000, 25_000_000),
        bracket(100_026_000, 50_000_000),
    ];
    measure_rate(&mut check, &readings[0], &readings[1], &readings[2]);
    assert_eq!(check.frequency_hz, 2_000_500_000);
    assert!(
        (check.drift_ppm - 500.0).abs() < 1e-6,
        "{}",
        check.drift_ppm
    );
    assert!(
        (check.drift_margin_ppm - 1.6).abs() < 0.01,
        "{}",
        check.drift_margin_ppm
    );
    assert!(matches!(judge(&check, "tsc"), CounterVerdict::Untrusted(_)));
}
