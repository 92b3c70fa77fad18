//! A guest whose clocks are changed by known amounts. `ticktax clock` must report each change.

use std::fs::File;
use std::thread;
use std::time::Duration;

use libtest_mimic::Failed;
use ticktax_inject::system_clock;
use ticktax_model::Nanos;
use ticktax_model::timekeeping::{ElevenMinuteMode, Timekeeping};

use crate::boot::Guest;
use crate::checks::check;
use crate::inside::{Outcome, ticktax};

/// The argument that tells this guest what to do.
pub(crate) const VERB: &str = "clock-guest";
/// JSON document of `ticktax clock`.
const DOCUMENT: &str = "clock.json";
/// Steps of the system clock, and times of each after the start of the watch.
const STEPS: [(Duration, Nanos); 2] = [
    (Duration::from_secs(15), Nanos::from_millis(2_250)),
    (Duration::from_secs(35), Nanos::from_micros(-40)),
];
/// Time at which the clock becomes synchronised, and faster by [`FASTER_PPM`].
const SYNCHRONISED: Duration = Duration::from_secs(55);
const TICK_US: i64 = 10_050;
const FASTER_PPM: f64 = 5_000.0;

/// Runs in the guest. The kernel sets the hardware clock when the clock becomes synchronised, and
/// again after 11 minutes.
pub(crate) fn run() -> Outcome {
    let mut command = ticktax();
    command.args([
        "clock",
        "--for",
        "15m",
        "--interval",
        "10s",
        "--format",
        "json",
    ]);
    command
        .args(["--log", "/tmp/log"])
        .stdout(File::create(DOCUMENT)?);
    let mut watching = command.spawn()?;
    let mut passed = Duration::ZERO;
    for (at, size) in STEPS {
        thread::sleep(at.saturating_sub(passed));
        passed = at;
        system_clock::step(size)?;
    }
    thread::sleep(SYNCHRONISED.saturating_sub(passed));
    system_clock::synchronise(TICK_US)?;
    let status = watching.wait()?;
    if status.success() {
        Ok(())
    } else {
        Err("ticktax clock failed".into())
    }
}

pub(crate) fn test() -> Result<(), Failed> {
    let returned = Guest::counting(VERB).returned("TICKTAX_CLOCK_FOLDER", DOCUMENT)?;
    let text = std::fs::read(returned.folder.join(DOCUMENT))?;
    let found: Timekeeping = serde_json::from_slice(&text)?;
    let context = || format!("{found:#?}");
    // The second step is far smaller than the first, but larger than the error of the readings.
    check(found.steps.len() == STEPS.len(), context)?;
    for (step, (at, size)) in found.steps.iter().zip(STEPS) {
        check((step.size - size).0.abs() <= step.uncertainty.0, context)?;
        // The program was started before the watch began.
        let late = Nanos::from_millis(i64::try_from(at.as_millis())?) - step.at;
        check((0..1_000_000_000).contains(&late.0), context)?;
    }
    check(found.discipline.is_synchronised, context)?;
    check(found.discipline.tick_us == TICK_US, context)?;
    check(
        found.eleven_minute_mode() == ElevenMinuteMode::Possible,
        context,
    )?;
    // The clock ran at its normal rate until it was made faster.
    let rate = |samples: &[_]| {
        let part = Timekeeping {
            samples: samples.to_vec(),
            ..found.clone()
        };
        part.rate()
    };
    let limit = Nanos::from_secs(SYNCHRONISED.as_secs().cast_signed());
    let split = found.samples.partition_point(|sample| sample.raw < limit);
    let before = rate(&found.samples[..split - 1]).ok_or("no samples")?;
    check(before.ppm.abs() <= before.uncertainty_ppm, context)?;
    let after = rate(&found.samples[split + 1..]).ok_or("no samples")?;
    let error = (after.ppm - FASTER_PPM).abs();
    check(error <= after.uncertainty_ppm + 0.01, context)?;
    // The kernel sets the hardware clock at once, and after 11 minutes, in which the clocks have
    // drifted apart. QEMU's hardware clock keeps its fraction of a second when it is set.
    let [rtc] = &found.rtcs[..] else {
        return check(false, context);
    };
    check(rtc.sets_system_clock && rtc.settings.len() == 2, context)?;
    let minutes =
        [rtc.settings[0], rtc.settings[1]].map(|set| (set.before - limit).0 as f64 / 60e9);
    check(
        minutes[0] < 0.5 && (10.5..11.7).contains(&minutes[1]),
        context,
    )?;
    let drifted = (rtc.settings[1].before - limit).0 as f64 * FASTER_PPM / 1e6;
    for (set, expected) in rtc.settings.iter().zip([STEPS[0].1.0 as f64, drifted]) {
        check((set.change.0 as f64 - expected).abs() <= 1e9, context)?;
    }
    // No drift is computed from readings between which a clock was set.
    let drift = rtc.drift.ok_or("no drift")?;
    check(
        (drift.drift_ppm + FASTER_PPM).abs() <= drift.uncertainty_ppm + 30.0,
        context,
    )
}
