//! The flight recorder in a guest.

mod facts;
pub(crate) mod guest;

use std::collections::BTreeMap;
use std::ops::Range;

use facts::Accounts;
use serde_json::Value;
use ticktax_lab::qemu::{Clock, Outcome};
use ticktax_model::Nanos;
use ticktax_model::limitation::Limitation;
use ticktax_model::recording::Header;
use ticktax_model::statement::Statement;

use crate::boot::Guest;
use crate::fixture::{CLOUD, complaint, ticktax};

/// What the guest wrote under this name.
fn said(outcome: &Outcome, name: &str) -> String {
    let bytes = outcome.file(name).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of JSON that it wrote under this name.
fn lines(outcome: &Outcome, name: &str) -> Vec<Value> {
    let text = said(outcome, name);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// A stall as the guest made it, beside the line that the index has for it.
struct Caught {
    told: Value,
    line: Value,
    header: Header,
}

impl Caught {
    /// All of them, in their order.
    fn all(outcome: &Outcome) -> Vec<Self> {
        let index = lines(outcome, "index.jsonl");
        let named = |name: &str| index.iter().filter(|it| it["line"] == name).count();
        assert_eq!((named("began"), named("ended")), (1, 1), "{index:#?}");
        let incidents = index.into_iter().filter(|it| it["line"] == "incident");
        let incidents: Vec<Value> = incidents.collect();
        let told = lines(outcome, guest::TOLD);
        assert_eq!(told.len(), incidents.len(), "{incidents:#?}");
        let both = told.into_iter().zip(incidents);
        both.map(|(told, line)| Self::of(outcome, told, line))
            .collect()
    }

    /// Reads its recording as a user does, which has to balance.
    fn of(outcome: &Outcome, told: Value, line: Value) -> Self {
        let name = line["recording"].as_str().unwrap_or_default();
        let bytes = outcome.file(name).unwrap_or_else(|| panic!("{line}"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        std::fs::write(&file, bytes).unwrap();
        let mut command = ticktax();
        let output = command
            .arg("report")
            .arg(&file)
            .args(["--format", "json"])
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{told} {}", complaint(&output));
        let statement: Statement = serde_json::from_slice(&output.stdout).unwrap();
        assert!(statement.balances(), "{told} {:?}", statement.balance);
        let reader = ticktax_store::recording::RecordingReader::open(&file).unwrap();
        let header = reader.header().clone();
        Self { told, line, header }
    }

    fn number(of: &Value, name: &str) -> i64 {
        of[name]
            .as_i64()
            .unwrap_or_else(|| panic!("{name} of {of}"))
    }

    /// The stall, its length, who made it and when, by the wall clock as it stood then.
    fn is_right(&self) {
        let Self { told, line, header } = self;
        let incident = &line["incident"];
        assert_eq!(incident["kind"], "wait", "{told} {line}");
        assert_eq!(incident["thread"]["name"], guest::VICTIM, "{told} {line}");
        // Of its process only the thread that took its CPU ran there.
        let most = Self::number(&incident["ran"][0], "time_ns");
        assert_eq!(incident["ran"][0]["pids"][0], told["pid"], "{told} {line}");
        assert_eq!(incident["cpu"], told["cpu"], "{told} {line}");
        let lasted = Self::number(incident, "lasted_ns");
        assert!(
            lasted > guest::STALL.0 / 3 && most > lasted / 2,
            "{told} {line}"
        );
        let at = Self::number(incident, "at_unix_ms");
        let [after, before] = ["after_unix_ms", "before_unix_ms"].map(|it| Self::number(told, it));
        assert!((after - 1..=before + 1).contains(&at), "{told} {line}");
        // Its window begins 2 s earlier, or where the one before ended.
        let began = header.began_unix * 1_000;
        assert!((at - 15_000..=at).contains(&began), "{told} {began}");
        // A stall cannot have been longer than its window: no time is in it twice.
        for books in &header.books {
            assert!(books.elapsed() <= Nanos::from_secs(10), "{told} {books:?}");
        }
    }

    fn limitations(&self) -> &[Limitation] {
        &self.header.coverage.limitations
    }

    fn was_set(&self) -> Option<Nanos> {
        self.limitations().iter().find_map(|it| match it {
            Limitation::ClockSet { by } => Some(*by),
            _ => None,
        })
    }

    fn slept(&self) -> Option<Nanos> {
        self.limitations().iter().find_map(|it| match it {
            Limitation::Suspended { time } => Some(*time),
            _ => None,
        })
    }
}

/// A CPU leaves and comes back, the wall clock is set, the machine is suspended: whatever happens, the recorder goes
/// on, catches stalls, and keeps its books.
pub(crate) fn a_recorder_outlives_what_happens_to_its_machine() {
    let guest = Guest {
        kernel: CLOUD,
        verb: guest::VERB,
        // On a busy host, the kernel takes a timer that comes late for a broken one, and gives up.
        cmdline: "no_timer_check",
        cpus: 2,
        clock: Clock::Tcg,
    };
    let folder = tempfile::tempdir().unwrap();
    let outcome = guest.boot(folder.path());
    let outcome = outcome.unwrap_or_else(|failed| panic!("{}", failed.message().unwrap_or("?")));
    let remarks = [ticktax_lab::guest::STANDARD_ERROR, guest::SAID, guest::TOLD];
    let remarks = remarks.map(|name| said(&outcome, name)).concat();
    let ended: Value = serde_json::from_str(&said(&outcome, guest::ENDED)).unwrap();
    // The sums of all that time: to the ns, on each CPU.
    assert_eq!(ended["code"], 0, "{remarks}");
    assert!(remarks.contains("the books balance"), "{remarks}");
    let caught = Caught::all(&outcome);
    assert_eq!(caught.len(), 8, "{remarks}");
    for one in &caught {
        one.is_right();
    }
    let set: Vec<_> = caught.iter().map(Caught::was_set).collect();
    let there_and_back = [None, None, None, Some(guest::STEP), Some(-guest::STEP)];
    let is_about = |(found, wanted): (&Option<Nanos>, &Option<Nanos>)| match (found, wanted) {
        (Some(found), Some(wanted)) => (*found - *wanted).0.abs() < 1_000_000_000,
        (found, wanted) => found == wanted,
    };
    let rest = [None; 3];
    let wanted = there_and_back.iter().chain(&rest);
    assert!(set.iter().zip(wanted).all(is_about), "{set:?}");
    let asleep = Nanos(Caught::number(&ended, "asleep_ns"));
    assert!(
        asleep > Nanos::from_secs(1),
        "the machine did not sleep: {ended}"
    );
    let slept: Vec<_> = caught.iter().map(Caught::slept).collect();
    let [rest @ .., before, after] = &slept[..] else {
        panic!("{slept:?}");
    };
    assert!(
        before.is_some_and(|it| (it - asleep).0.abs() < 100_000_000),
        "{slept:?}"
    );
    assert!(rest.iter().chain([after]).all(Option::is_none), "{slept:?}");
    // Nobody has the time in which it slept: all that is counted fits into the time that it was awake.
    let page = said(&outcome, guest::PAGE);
    let index = lines(&outcome, "index.jsonl");
    let began = Caught::number(&index[0], "at_unix_ms") * 1_000_000;
    let began = began - Caught::number(&ended, "wall_ahead_ns");
    let until = |what: &str| Nanos(Caught::number(&ended, what) - began).as_secs_f64();
    let watched = until("counted_ns");
    for cpu in ["0", "1"] {
        let of = |family: &str| sum_of(&page, &format!("{family}{{cpu=\"{cpu}\""));
        let recorded = of("ticktax_recorded_seconds_total");
        let classes = of("ticktax_cpu_seconds_total");
        assert!((recorded - classes).abs() < 1e-6, "{recorded} {classes}");
        let fits = recorded > watched / 2.0 && recorded < watched + 0.01;
        assert!(fits, "{recorded} s of {watched}: {page}");
    }
    let recorded = sum_of(&page, "ticktax_recorded_seconds_total{cpu=\"0\"");
    // Facts begin a moment later than the sums.
    facts_span_what_was_watched(&outcome, recorded * 0.9..until("over_ns"));
}

/// Windows follow each other without a gap however the wall clock is set, and hold no time in which the machine slept.
fn facts_span_what_was_watched(outcome: &Outcome, seconds: Range<f64>) {
    let minutes = Accounts::read(outcome, "accounts");
    for table in ["accounts_10m", "accounts_1h"] {
        let longer = Accounts::read(outcome, table);
        assert_eq!(longer.time, minutes.time, "{table}");
        assert_eq!(longer.length(), minutes.length(), "{table}");
    }
    // About what its page had at least, until it had ended at most.
    let length = minutes.length().as_secs_f64();
    assert!(
        seconds.contains(&length),
        "{length} s of {seconds:?}: {minutes:?}"
    );
    let lengths: BTreeMap<i64, Nanos> = minutes.windows.iter().copied().collect();
    for (window @ (begin, cpu), time) in &minutes.of_window {
        // Sums come within a moment of the window's ends; what was going on when it began came in with all its time.
        let most = lengths[begin] + minutes.longest[window] + Nanos::from_secs(2);
        assert!(*time <= most, "CPU {cpu} at {begin}: {time} of {most}");
    }
}

/// The sum of the values of these series on a page.
fn sum_of(page: &str, series: &str) -> f64 {
    let lines = page.lines().filter(|line| line.starts_with(series));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}
