//! Tests a flight recorder in a guest whose machine changes: CPUs go offline, the clock is set, and
//! the machine is suspended.

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

fn guest_text(outcome: &Outcome, name: &str) -> String {
    let bytes = outcome.file(name).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// Parses the guest's file `name`, which contains one JSON value per line.
fn lines(outcome: &Outcome, name: &str) -> Vec<Value> {
    let text = guest_text(outcome, name);
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

/// A stall that the guest caused, and its incident in the index.
struct Caught {
    stall: Value,
    line: Value,
    header: Header,
}

impl Caught {
    fn all(outcome: &Outcome) -> Vec<Self> {
        let index = lines(outcome, "index.jsonl");
        let named = |name: &str| index.iter().filter(|line| line["line"] == name).count();
        assert_eq!((named("began"), named("ended")), (1, 1), "{index:#?}");
        let incidents = index.into_iter().filter(|line| line["line"] == "incident");
        let incidents: Vec<Value> = incidents.collect();
        let stalls = lines(outcome, guest::STALLS);
        assert_eq!(stalls.len(), incidents.len(), "{incidents:#?}");
        let pairs = stalls.into_iter().zip(incidents);
        pairs
            .map(|(stall, line)| Self::new(outcome, stall, line))
            .collect()
    }

    /// Reads the incident's recording. Fails if its accounts do not balance.
    fn new(outcome: &Outcome, stall: Value, line: Value) -> Self {
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
        assert!(output.status.success(), "{stall} {}", complaint(&output));
        let statement: Statement = serde_json::from_slice(&output.stdout).unwrap();
        assert!(statement.balances(), "{stall} {:?}", statement.balance);
        let reader = ticktax_store::recording::RecordingReader::open(&file).unwrap();
        let header = reader.header().clone();
        Self {
            stall,
            line,
            header,
        }
    }

    fn number(object: &Value, name: &str) -> i64 {
        object[name]
            .as_i64()
            .unwrap_or_else(|| panic!("{name} of {object}"))
    }

    /// Checks the stall's length, culprit and wall-clock time. The guest changes the clock between
    /// stalls, so this must be the time that the clock showed during the stall.
    fn is_right(&self) {
        let Self {
            stall,
            line,
            header,
        } = self;
        let incident = &line["incident"];
        assert_eq!(incident["kind"], "wait", "{stall} {line}");
        assert_eq!(incident["thread"]["name"], guest::VICTIM, "{stall} {line}");
        // Only one of the injector's threads ran during the stall: the one that preempted the
        // victim. On a busy host, the guest's timer interrupts may have taken more time than that
        // thread.
        let ran = incident["ran"].as_array().map_or(&[][..], Vec::as_slice);
        let thread = ran.iter().find(|ran| ran["kind"] == "task");
        let thread = thread.unwrap_or_else(|| panic!("{stall} {line}"));
        assert_eq!(thread["pids"][0], stall["pid"], "{stall} {line}");
        let interrupts = ran.iter().filter(|ran| ran["kind"] != "task");
        let interrupts = interrupts.map(|ran| Self::number(ran, "time_ns"));
        let most = Self::number(thread, "time_ns") + interrupts.sum::<i64>();
        assert_eq!(incident["cpu"], stall["cpu"], "{stall} {line}");
        let lasted = Self::number(incident, "lasted_ns");
        assert!(
            lasted > guest::STALL.0 / 3 && most > lasted / 2,
            "{stall} {line}"
        );
        let at = Self::number(incident, "at_unix_ms");
        let [after, before] =
            ["after_unix_ms", "before_unix_ms"].map(|bound| Self::number(stall, bound));
        assert!((after - 1..=before + 1).contains(&at), "{stall} {line}");
        // The window starts 2 s before the stall or at the end of the previous window, if that is
        // later.
        let began = header.began_unix * 1_000;
        assert!((at - 15_000..=at).contains(&began), "{stall} {began}");
        // A window lasts less than 10 s. A CPU with more time than that would have had some of it
        // counted twice.
        for books in &header.cpus {
            assert!(books.elapsed() <= Nanos::from_secs(10), "{stall} {books:?}");
        }
    }

    fn limitations(&self) -> &[Limitation] {
        &self.header.coverage.limitations
    }

    fn was_set(&self) -> Option<Nanos> {
        self.limitations()
            .iter()
            .find_map(|limitation| match limitation {
                Limitation::ClockSet { step: by } => Some(*by),
                _ => None,
            })
    }

    fn slept(&self) -> Option<Nanos> {
        self.limitations()
            .iter()
            .find_map(|limitation| match limitation {
                Limitation::Suspended { time } => Some(*time),
                _ => None,
            })
    }
}

/// Checks that the recorder keeps running, catches stalls and balances its accounts even though a
/// CPU goes offline and returns, the wall clock is set, and the machine is suspended.
pub(crate) fn a_recorder_survives_changes_of_its_machine() {
    let guest = Guest {
        kernel: CLOUD,
        verb: guest::VERB,
        // Without this parameter, a timer interrupt delayed by a busy host could make the kernel
        // assume that the timer is broken, and panic.
        cmdline: "no_timer_check",
        cpus: 2,
        clock: Clock::Tcg,
        debugger: None,
        disk: None,
        files: &[],
    };
    let folder = tempfile::tempdir().unwrap();
    let outcome = guest.boot(folder.path());
    let outcome = outcome.unwrap_or_else(|failed| panic!("{}", failed.message().unwrap_or("?")));
    let remarks = [
        ticktax_lab::guest::STANDARD_ERROR,
        guest::SAID,
        guest::STALLS,
    ];
    let remarks = remarks.map(|name| guest_text(&outcome, name)).concat();
    let ended: Value = serde_json::from_str(&guest_text(&outcome, guest::ENDED)).unwrap();
    // The sums over the whole run must balance exactly on each CPU.
    assert_eq!(ended["code"], 0, "{remarks}");
    assert!(remarks.contains("the accounts balance"), "{remarks}");
    let caught = Caught::all(&outcome);
    assert_eq!(caught.len(), 8, "{remarks}");
    for stall in &caught {
        stall.is_right();
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
        before.is_some_and(|time| (time - asleep).0.abs() < 100_000_000),
        "{slept:?}"
    );
    assert!(rest.iter().chain([after]).all(Option::is_none), "{slept:?}");
    // No account may contain the time of the suspend, so the accounts must add up to no more than
    // the time that the machine was awake.
    let page = guest_text(&outcome, guest::PAGE);
    let index = lines(&outcome, "index.jsonl");
    let began = Caught::number(&index[0], "at_unix_ms") * 1_000_000;
    let began = began - Caught::number(&ended, "wall_ahead_ns");
    let until = |what: &str| Nanos(Caught::number(&ended, what) - began).as_secs_f64();
    let watched = until("counted_ns");
    for cpu in ["0", "1"] {
        let total = |family: &str| sum_of(&page, &format!("{family}{{cpu=\"{cpu}\""));
        let recorded = total("ticktax_recorded_seconds_total");
        let classes = total("ticktax_cpu_seconds_total");
        assert!((recorded - classes).abs() < 1e-6, "{recorded} {classes}");
        let fits = recorded > watched / 2.0 && recorded < watched + 0.01;
        assert!(fits, "{recorded} s of {watched}: {page}");
    }
    let recorded = sum_of(&page, "ticktax_recorded_seconds_total{cpu=\"0\"");
    // Allow a tenth less, because the facts start slightly later than the sums.
    facts_span_what_was_watched(&outcome, recorded * 0.9..until("over_ns"));
}

/// Checks that the windows of the facts follow each other without a gap, even though the wall clock
/// was set, and that they do not contain the time of the suspend.
fn facts_span_what_was_watched(outcome: &Outcome, seconds: Range<f64>) {
    let minutes = Accounts::read(outcome, "accounts");
    for table in ["accounts_10m", "accounts_1h"] {
        let longer = Accounts::read(outcome, table);
        assert_eq!(longer.time, minutes.time, "{table}");
        assert_eq!(longer.length(), minutes.length(), "{table}");
    }
    // The windows must cover about the time that the metrics show, and no more than the time until
    // the agent exited.
    let length = minutes.length().as_secs_f64();
    assert!(
        seconds.contains(&length),
        "{length} s of {seconds:?}: {minutes:?}"
    );
    let lengths: BTreeMap<i64, Nanos> = minutes.windows.iter().copied().collect();
    for (window @ (begin, cpu), time) in &minutes.of_window {
        // Allow 2 s more, because sums arrive shortly after the end of a window. Also allow for the
        // longest interval: one that started before the window still counts in full.
        let upper = lengths[begin] + minutes.longest[window] + Nanos::from_secs(2);
        assert!(*time <= upper, "CPU {cpu} at {begin}: {time} of {upper}");
    }
}

/// Adds up a series' values in the metrics.
fn sum_of(page: &str, series: &str) -> f64 {
    let lines = page.lines().filter(|line| line.starts_with(series));
    let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}
