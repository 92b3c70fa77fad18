//! Page about the system clock and the hardware clocks.

use ticktax_model::Nanos;
use ticktax_model::timekeeping::{
    ClockLimitation, Discipline, ElevenMinuteMode, Leap, Rtc, RtcDrift, Timekeeping,
};

use super::block::{Columns, Written};
use super::page::{Page, Tone, tied};
use super::{Paged, TextStyle};

/// Maximum number of listed steps, switches and settings.
const MOST: usize = 10;
/// Offset above which an NTP daemon usually steps a clock instead of slewing it.
const STEPPED: Nanos = Nanos::from_millis(128);
/// Offset above which an NTP daemon usually gives up.
const PANIC: Nanos = Nanos::from_secs(1_000);

impl Paged for Timekeeping {
    fn page(&self, style: &TextStyle) -> Written {
        let mut page = Page::new(*style);
        page.line(Tone::Strong, "Clocks of this machine");
        summary(&mut page, self);
        discipline(&mut page, &self.discipline);
        changes(&mut page, self);
        for rtc in &self.rtcs {
            hardware(&mut page, rtc);
        }
        if let Some(text) = eleven_minutes(self) {
            page.paragraph(Tone::Faint, "", text);
        }
        for limitation in &self.limitations {
            page.hanging(Tone::Warning, &limitation_text(limitation));
        }
        page.finish()
    }
}

fn summary(page: &mut Page, found: &Timekeeping) {
    let state = if found.discipline.is_synchronised {
        "The kernel calls the system clock synchronised."
    } else {
        "The kernel calls the system clock unsynchronised: no program has told it otherwise."
    };
    page.paragraph(Tone::Plain, "", state);
    let source = &found.source;
    if !source.current.is_empty() {
        let others: Vec<&str> = source.available.iter().map(String::as_str).collect();
        let text = format!(
            "Clock source: {} (available: {}).",
            source.current,
            others.join(", ")
        );
        page.paragraph(Tone::Plain, "", &text);
    }
    if found.watched > Nanos::ZERO
        && let Some(rate) = found.rate()
    {
        let text = format!(
            "In {}, the system clock gained {} on CLOCK_MONOTONIC_RAW (±{}), and {}.",
            found.watched,
            ppm(rate.ppm),
            tied(format!("{:.3} ppm", rate.uncertainty_ppm)),
            times(found.steps.len()),
        );
        let tone = if found.steps.is_empty() {
            Tone::Plain
        } else {
            Tone::Warning
        };
        page.paragraph(tone, "", &text);
    }
    let is_unknown = found.limitations.contains(&ClockLimitation::DevicesUnknown);
    if found.rtcs.is_empty() && !is_unknown {
        page.paragraph(Tone::Plain, "", "This machine has no hardware clock (RTC).");
    }
}

fn times(count: usize) -> String {
    match count {
        0 => "was not stepped".to_owned(),
        1 => "was stepped once".to_owned(),
        _ => format!("was stepped {count} times"),
    }
}

fn ppm(value: f64) -> String {
    tied(format!("{value:+.3} ppm"))
}

fn discipline(page: &mut Page, state: &Discipline) {
    page.section("System clock (adjtimex)");
    let mut row = |name: &str, value: String| {
        page.row(Tone::Plain, 2, name, &Columns::right([(16, value)]));
    };
    row("frequency correction", ppm(state.frequency_ppm));
    row("remaining correction", signed(state.offset));
    row("length of a tick", tied(format!("{} µs", state.tick_us)));
    row("estimated error", state.estimated_error.to_string());
    row("maximum error", state.max_error.to_string());
    let tai = match state.tai_offset_s {
        0 => "unknown".to_owned(),
        seconds => tied(format!("{seconds} s")),
    };
    row("TAI minus UTC", tai);
    let leap = match state.leap {
        Leap::None => "none planned",
        Leap::Insert => "inserted tonight",
        Leap::Delete => "deleted tonight",
        Leap::InProgress => "now",
        Leap::Occurred => "has occurred",
    };
    row("leap second", leap.to_owned());
}

fn signed(time: Nanos) -> String {
    if time < Nanos::ZERO {
        time.to_string()
    } else {
        tied(format!("+{time}"))
    }
}

fn changes(page: &mut Page, found: &Timekeeping) {
    if !found.steps.is_empty() {
        page.section("Steps of the system clock");
        page.headings(Tone::Faint, "", &columns(["after", "step", "±"]));
        for step in found.steps.iter().take(MOST) {
            let cells = [
                step.at.to_string(),
                signed(step.size),
                step.uncertainty.to_string(),
            ];
            page.row(Tone::Warning, 2, "step", &columns(cells));
        }
        rest(page, found.steps.len());
    }
    for switch in found.switches.iter().take(MOST) {
        let text = format!(
            "After {}, the kernel changed the clock source from {} to {}.",
            switch.at, switch.from, switch.to
        );
        page.paragraph(Tone::Warning, "", &text);
    }
}

fn columns<T: ToString>(cells: [T; 3]) -> Columns {
    Columns::right([14, 16, 12].into_iter().zip(cells))
}

fn rest(page: &mut Page, count: usize) {
    if count > MOST {
        let text = format!("{} more (--format json)", count - MOST);
        page.paragraph(Tone::Faint, "  ", &text);
    }
}

fn hardware(page: &mut Page, rtc: &Rtc) {
    page.section(&format!("Hardware clock {} ({})", rtc.name, rtc.driver));
    let Some(last) = rtc.readings.last() else {
        return;
    };
    let text = format!(
        "It is {} {} the system clock (±{}), if it holds UTC.",
        Nanos(last.offset.0.abs()),
        if last.offset < Nanos::ZERO {
            "behind"
        } else {
            "ahead of"
        },
        last.uncertainty
    );
    page.paragraph(Tone::Plain, "", &text);
    if let Some(drift) = rtc.drift {
        page.paragraph(Tone::Plain, "", &drift_text(drift, last.offset));
    }
    if !rtc.settings.is_empty() {
        page.headings(Tone::Faint, "", &columns(["before", "change", "±"]));
    }
    for setting in rtc.settings.iter().take(MOST) {
        let cells = [
            setting.before.to_string(),
            signed(setting.change),
            setting.uncertainty.to_string(),
        ];
        page.row(Tone::Warning, 2, "something set it", &columns(cells));
    }
    rest(page, rtc.settings.len());
}

fn drift_text(drift: RtcDrift, offset: Nanos) -> String {
    let mut text = format!(
        "Relative to the system clock, it drifts by {} (±{}; {} readings in {}).",
        ppm(drift.drift_ppm),
        tied(format!("{:.3} ppm", drift.uncertainty_ppm)),
        drift.readings,
        drift.span
    );
    for limit in [STEPPED, PANIC] {
        match drift.time_until(offset, limit) {
            Some(Nanos::ZERO) => {}
            Some(time) => {
                text += " It will be ";
                text += &limit.to_string();
                text += " off in ";
                text += &time.to_string();
                text += ".";
            }
            None => return text,
        }
    }
    text
}

fn eleven_minutes(found: &Timekeeping) -> Option<&'static str> {
    Some(match found.eleven_minute_mode() {
        ElevenMinuteMode::NoRtc => return None,
        ElevenMinuteMode::Unsynchronised => {
            "The kernel does not set the hardware clock by itself, because the system clock is not \
             synchronised."
        }
        ElevenMinuteMode::Possible => {
            "Because the system clock is synchronised, the kernel sets the hardware clock about \
             every 11 minutes, if it was built with CONFIG_RTC_SYSTOHC. To see it, watch for longer \
             than that (--for 12m)."
        }
    })
}

fn limitation_text(limitation: &ClockLimitation) -> String {
    match limitation {
        ClockLimitation::NoClockSource => {
            "/sys/devices/system/clocksource cannot be read, so the clock source is unknown."
                .to_owned()
        }
        ClockLimitation::NoStepEvents => {
            "The kernel does not report steps (timerfd), so two steps between samples count as one."
                .to_owned()
        }
        ClockLimitation::DevicesUnknown => {
            "/sys/class cannot be read, so hardware clocks are unknown.".to_owned()
        }
        ClockLimitation::RtcUnreadable { name, why } => {
            format!("The hardware clock {name} cannot be read: {why}.")
        }
        ClockLimitation::LogUnusable { path, why } => {
            format!(
                "{path} cannot be used ({why}), so the drift comes from this run only. Choose \
                 another file with --log."
            )
        }
    }
}
