//! The page about the differences between two recordings.

use ticktax_model::beats::BeatLine;
use ticktax_model::comparison::{
    BeatChange, ComparedRecording, Comparison, Contrast, Measure, Metric, RecordingsRecord, Scale,
    Unit,
};
use ticktax_model::statement::Class;

use super::super::TextStyle;
use super::super::beats::{beat_name, short_period};
use super::super::block::{Columns, Written};
use super::super::head;
use super::super::numbers::{counted, cpu_names, date, grouped, percent};
use super::super::page::{Page, TIE, Tone, columns, tied};
use super::super::screen::{explained, fitted, narrowed};
use super::super::value::Shown;
use super::effects::ROOMY;
use super::metric_title;
use crate::view::{Section, View};

/// A metric in both recordings, with its difference.
struct Change<'a> {
    metric: &'a Metric,
    first: Option<f64>,
    second: Option<f64>,
    contrast: &'a Contrast,
}

impl Change<'_> {
    /// Returns the second value minus the first, or `None` if either value is missing.
    fn difference(&self) -> Option<f64> {
        Some(self.second? - self.first?)
    }
}

/// The changes, grouped by the part of the page that shows them.
struct Changes<'a> {
    record: &'a RecordingsRecord,
    /// Each account's share of CPU time, except a probe's. A probe uses only idle time, so its
    /// account merely mirrors changes in other accounts.
    accounts: Vec<Change<'a>>,
    probes: Vec<Change<'a>>,
    program: Vec<Change<'a>>,
    tick: Vec<Change<'a>>,
}

impl<'a> Changes<'a> {
    fn new(comparison: &'a Comparison, record: &'a RecordingsRecord) -> Self {
        let mut changes = Self {
            record,
            accounts: Vec::new(),
            probes: Vec::new(),
            program: Vec::new(),
            tick: Vec::new(),
        };
        for effect in &comparison.effects {
            let Some(metric) = comparison.metrics.get(effect.metric) else {
                continue;
            };
            let part = match (metric.account, metric.unit, metric.measure()) {
                (Some(Class::Probe), Unit::Share, _) => &mut changes.probes,
                (Some(_), Unit::Share, _) => &mut changes.accounts,
                (Some(_), ..) => continue,
                (None, _, Some(Measure::TickRate | Measure::TickMedian | Measure::TickShare)) => {
                    &mut changes.tick
                }
                (None, ..) => &mut changes.program,
            };
            let value = |arm: usize| comparison.arms.get(arm)?.value(effect.metric);
            part.push(Change {
                metric,
                first: value(effect.base),
                second: value(effect.arm),
                contrast: &effect.contrast,
            });
        }
        changes
    }
}

/// Maximum numbers of rows for accounts, periodic sources and programs. They are tried in this
/// order, largest first, until the page fits.
const ROOMS: [(usize, usize, usize); 8] = [
    (10, 4, 8),
    (8, 3, 6),
    (6, 3, 6),
    (5, 3, 4),
    (4, 2, 4),
    (3, 2, 3),
    (2, 1, 2),
    (1, 1, 1),
];
/// Indent of the rows of a table.
const INDENT: usize = 2;
/// Smallest difference between two shares that counts as a change if there is no confidence
/// interval.
const SMALL: f64 = 0.001;
/// Smallest difference between two shares that is not printed as zero.
const TINY: f64 = 0.000_05;

/// Smallest difference in a program's waiting time, as a share of the CPU time that it needed, that
/// the verdict calls less or more.
const WAITED: f64 = 0.01;
/// Smallest change in a program's share that makes two recordings count as having different loads.
const LOAD: f64 = 0.05;

/// Explains the columns.
const WORDS: &str = "A, B: the first and the second recording. Shares are relative to the total \
    time of all CPUs. change: B minus A, in percentage points (pp) for shares. 95 % CI: confidence \
    interval of the change, from blocks of equal length of both recordings; a recording that keeps \
    only sums has no blocks. ?: the interval excludes 0, but the change may be chance, because all \
    accounts are tested together.";

/// Renders a comparison of two recordings as a page that ends with a line break.
pub(super) fn page(
    comparison: &Comparison,
    record: &RecordingsRecord,
    style: &TextStyle,
) -> Written {
    let statement = &Changes::new(comparison, record);
    if style.view == View::First {
        let text = fitted(&ROOMS, |room| first(statement, style, room));
        return explained(text, WORDS, style);
    }
    let mut page = Page::new(*style);
    let view = style.view;
    let legends = view.is_legend_only();
    if view == View::Full {
        sides(&mut page, statement);
    }
    if legends || view.shows(Section::Time) {
        page.section("Accounts");
        accounts(&mut page, statement, usize::MAX);
        page.legend(WORDS);
        if !statement.program.is_empty() {
            page.section("Program");
            measures(&mut page, &statement.program, usize::MAX);
        }
    }
    if view.shows(Section::Repeats) {
        page.section("Periodic activity");
        beats(&mut page, statement, usize::MAX);
    }
    if view.shows(Section::Tick) && !statement.tick.is_empty() {
        page.section("Tick");
        measures(&mut page, &statement.tick, usize::MAX);
    } else if view.shows(Section::Tick) && view != View::Full {
        page.paragraph(Tone::Plain, "", "tick: neither recording has it.");
    }
    page.finish()
}

fn first(
    statement: &Changes<'_>,
    style: &TextStyle,
    (rows, rhythms, lines): (usize, usize, usize),
) -> Written {
    let mut page = Page::new(narrowed(style));
    verdict(&mut page, statement);
    sides(&mut page, statement);
    accounts(&mut page, statement, rows);
    if !statement.program.is_empty() {
        let name = statement
            .record
            .second
            .program
            .as_deref()
            .unwrap_or_default();
        measures_heading(&mut page, &format!("PROGRAM {name}"), &statement.program);
        measures(&mut page, &statement.program, lines);
    }
    if !statement.tick.is_empty() && tick_moved(statement) {
        measures_heading(&mut page, "TICK", &statement.tick);
        measures(&mut page, &statement.tick, lines);
    }
    beats(&mut page, statement, rhythms);
    let more = format!(
        "More: --full, {}",
        tied("--section time,repeats,tick,legend")
    );
    page.more(&more);
    page.finish()
}

/// Returns whether the tick rate changed by more than 2 %, or another tick measure changed by more
/// than chance.
fn tick_moved(statement: &Changes<'_>) -> bool {
    statement.tick.iter().any(|row| match row.metric.measure() {
        Some(Measure::TickRate) => {
            let first = row.first.unwrap_or_default();
            let moved = row.difference().unwrap_or(f64::MAX).abs();
            moved > 0.02 * first
        }
        _ => row.contrast.differs() == Some(true),
    })
}

/// Writes how much the program waited in both recordings.
fn program_verdict(page: &mut Page, statement: &Changes<'_>) {
    let name = statement
        .record
        .second
        .program
        .as_deref()
        .unwrap_or_default();
    let mut measures = statement.program.iter();
    let waited = measures.find(|row| row.metric.measure() == Some(Measure::WaitedShare));
    let Some((a, b)) = waited.and_then(|row| row.first.zip(row.second)) else {
        return;
    };
    let (tone, word) = match b - a {
        change if change <= -WAITED => (Tone::Good, "waited less in B"),
        change if change >= WAITED => (Tone::Alarm, "waited more in B"),
        _ => (Tone::Plain, "waited about as much in B"),
    };
    let text = format!(
        "{name} {word}: {} of the CPU time that it needed, {} in A.",
        tied(percent(b)),
        tied(percent(a))
    );
    page.paragraph(tone, "", &text);
}

/// Writes a sentence with the number of accounts that changed.
fn verdict(page: &mut Page, statement: &Changes<'_>) {
    program_verdict(page, statement);
    let all = statement.accounts.len();
    let changed = statement
        .accounts
        .iter()
        .filter(|account| account.contrast.differs() == Some(true) && moved(account));
    let changed = changed.count();
    let tested = statement
        .accounts
        .iter()
        .filter(|account| is_tested(account));
    let tested = tested.count();
    let judged = tested > 0;
    let accounts = if tested < all {
        format!("{} tested CPU-time accounts", grouped(tested as u64))
    } else {
        counted(all as u64, "CPU-time account")
    };
    let beats = statement.record.beats.len() as u64;
    let text = if judged {
        format!(
            "{} of {accounts} changed. {} appeared, disappeared or changed period; {} did not.",
            grouped(changed as u64),
            counted(beats, "periodic source"),
            grouped(statement.record.beats_kept),
        )
    } else {
        format!(
            "{} compared, without intervals: {}.",
            counted(all as u64, "CPU-time account"),
            without_blocks(statement)
        )
    };
    let tone = if changed == 0 && judged && beats == 0 {
        Tone::Good
    } else {
        Tone::Strong
    };
    page.paragraph(tone, "", &text);
}

/// Explains why the confidence intervals are missing.
fn without_blocks(statement: &Changes<'_>) -> &'static str {
    match (
        statement.record.first.blocks,
        statement.record.second.blocks,
    ) {
        (None, None) => "both recordings have only sums",
        (None, Some(_)) => "A has only sums",
        (Some(_), None) => "B has only sums",
        (Some(_), Some(_)) => "one recording is too short",
    }
}

/// Returns whether an account changed by more than chance. If that is unknown, returns whether the
/// change is large enough to be worth showing.
fn moved(account: &Change<'_>) -> bool {
    let size = account.difference().unwrap_or_default().abs();
    account.contrast.differs().unwrap_or(size >= SMALL) && size >= TINY
}

/// Returns whether a change was tested against chance. This requires a confidence interval.
fn is_tested(change: &Change<'_>) -> bool {
    change.contrast.differs().is_some()
}

/// Returns whether a change's confidence interval excludes 0 even though the change is not certain.
/// If there are many accounts, some intervals exclude 0 by chance.
fn is_doubtful(change: &Change<'_>) -> bool {
    let effect = change.contrast.effect;
    let excludes_zero = effect.is_some_and(|effect| !effect.may_be_none());
    excludes_zero && change.contrast.differs() == Some(false)
}

/// Describes the two recordings and the differences between their machines.
fn sides(page: &mut Page, statement: &Changes<'_>) {
    let (a, b) = (&statement.record.first, &statement.record.second);
    side(page, "A  ", a);
    side(page, "B  ", b);
    let mut differ: Vec<String> = Vec::new();
    if a.machine.host != b.machine.host {
        differ.push("host".to_owned());
    }
    if a.machine.kernel != b.machine.kernel {
        differ.push("kernel".to_owned());
    }
    if a.machine.hz_configured != b.machine.hz_configured {
        differ.push("tick rate".to_owned());
    }
    if a.cpus != b.cpus {
        differ.push("CPUs".to_owned());
    }
    if a.level != b.level {
        differ.push("kind of trace".to_owned());
    }
    if probes_differ(statement) {
        differ.push("probe".to_owned());
    }
    differ.extend(load(statement));
    if !differ.is_empty() {
        page.paragraph(Tone::Warning, "A and B differ in: ", &differ.join(", "));
    }
}

/// Describes the program whose CPU time changed most, apart from the watched one. Returns `None` if
/// both recordings have a similar load.
fn load(statement: &Changes<'_>) -> Option<String> {
    let watched = statement.record.second.program.as_deref();
    let size = |account: &&Change<'_>| account.difference().unwrap_or_default().abs();
    let programs = statement.accounts.iter();
    let programs = programs.filter(|account| {
        let is_program = account.metric.account == Some(Class::Program);
        is_program && Some(&*account.metric.id) != watched && moved(account)
    });
    let most = programs.max_by(|a, b| size(a).total_cmp(&size(b)))?;
    let (a, b) = most.first.zip(most.second)?;
    let text = format!(
        "load ({} used {} and {} of CPU time)",
        most.metric.id,
        tied(percent(a)),
        tied(percent(b))
    );
    (size(&most) >= LOAD).then_some(text)
}

/// Returns whether a probe used idle time in only one of the two recordings.
fn probes_differ(statement: &Changes<'_>) -> bool {
    let mut probes = statement.probes.iter();
    let ran = |share: Option<f64>| share.unwrap_or_default() >= SMALL;
    probes.any(|account| ran(account.first) != ran(account.second))
}

fn side(page: &mut Page, label: &str, side: &ComparedRecording) {
    let host = match &*side.machine.host {
        "" => "this machine",
        host => host,
    };
    let program = side.program.as_ref();
    let program = program.map_or_else(String::new, |name| format!(", {name}"));
    let hz = side.machine.hz_configured;
    let hz = hz.map_or_else(String::new, |hz| {
        format!(", {}", tied(format!("{hz} Hz tick")))
    });
    let unverified = if side.not_verified {
        "; not verified, because it has no checksums"
    } else {
        ""
    };
    let text = format!(
        "{}: {host}{}, Linux {}{hz}, {}, {}, started {}{program}{unverified}",
        side.file,
        head::in_world(side.world),
        side.machine.kernel,
        counted(side.cpus.len() as u64, "CPU"),
        tied(side.elapsed),
        date(side.began_unix),
    );
    page.paragraph(Tone::Plain, label, &text);
}

fn heading(page: &mut Page, title: &str) {
    let cells = cells(page, ["A", "B", "change", "95 % CI"]);
    page.headings(Tone::Strong, title, &cells);
}

fn cells(page: &Page, [a, b, change, interval]: [&str; 4]) -> Columns {
    if page.width() >= ROOMY {
        Columns::right([(9, a), (9, b), (10, change), (18, interval)])
    } else {
        Columns::right([(9, b), (10, change)])
    }
}

/// Writes the accounts that changed, or all accounts if the number of rows is unlimited.
fn accounts(page: &mut Page, statement: &Changes<'_>, most: usize) {
    heading(page, "CPU TIME");
    let shown = statement
        .accounts
        .iter()
        .filter(|account| most == usize::MAX || moved(account));
    let shown: Vec<_> = shown.collect();
    let some_tested = statement.accounts.iter().any(|account| is_tested(account));
    for account in shown.iter().take(most) {
        let tone = match account.contrast.differs() {
            Some(true) => Tone::Strong,
            _ => Tone::Plain,
        };
        let untested = some_tested && !is_tested(account);
        let interval = if untested { "not tested" } else { "" };
        let cells = change_cells(page, account, interval);
        page.row(tone, 2, &account.metric.id, &cells);
    }
    if shown.is_empty() {
        let tested = |account: &Change<'_>| is_tested(account);
        let text = if statement.accounts.iter().all(tested) {
            "no account changed by more than chance or rounding"
        } else if statement.accounts.iter().any(tested) {
            "no tested account changed by more than chance; the others changed by less than 0.1 pp"
        } else {
            "no account changed by 0.1 pp or more"
        };
        page.paragraph(Tone::Good, "  ", text);
    }
    let left = shown.len().saturating_sub(most);
    if left > 0 {
        let text = format!(
            "{} (--section time)",
            counted(left as u64, "smaller change")
        );
        page.paragraph(Tone::Faint, "  ", &text);
    }
    let all = statement.accounts.len();
    let doubtful = statement
        .accounts
        .iter()
        .filter(|account| is_doubtful(account))
        .count();
    if doubtful > 0 {
        let text = if most == usize::MAX {
            format!(
                "?: this change may be chance; among {}, some intervals exclude 0 by chance",
                tied(format!("{all} accounts"))
            )
        } else {
            format!(
                "{} may be due to chance (--section time)",
                counted(doubtful as u64, "more change")
            )
        };
        page.paragraph(Tone::Faint, "  ", &text);
    }
}

/// Formats a change. `?` marks a change that may be due to chance. If the change has no interval,
/// its cell contains `without_interval`.
fn change_cells(page: &Page, change: &Change<'_>, without_interval: &str) -> Columns {
    let shown = Shown::new(change.metric.unit, Scale::Absolute);
    let [a, b, mut moved, _] = shown.cells(change.first, change.second, change.contrast.effect);
    let mut interval = change.contrast.effect.map_or_else(
        || without_interval.to_owned(),
        |effect| shown.interval_with_unit(&effect),
    );
    if is_doubtful(change) {
        let last = if page.width() < ROOMY {
            &mut moved
        } else {
            &mut interval
        };
        last.push_str(" ?");
    }
    cells(page, [&a, &b, &moved, &interval])
}

/// Writes the heading for a table of measures.
fn measures_heading(page: &mut Page, title: &str, all: &[Change<'_>]) {
    if has_intervals(all) {
        return heading(page, title);
    }
    let cells = without_intervals(page, ["A", "B", "change"]);
    page.headings(Tone::Strong, title, &cells);
}

fn has_intervals(all: &[Change<'_>]) -> bool {
    all.iter().any(|row| row.contrast.effect.is_some())
}

/// Creates the cells for a table in which no change has a confidence interval.
fn without_intervals(page: &Page, [a, b, change]: [&str; 3]) -> Columns {
    if page.width() >= ROOMY {
        Columns::right([(9, a), (9, b), (10, change)])
    } else {
        Columns::right([(9, b), (10, change)])
    }
}

fn measures(page: &mut Page, all: &[Change<'_>], most: usize) {
    let nothing = |row: &&Change<'_>| {
        let never = row.first == Some(0.0) && row.second == Some(0.0);
        !never || most == usize::MAX
    };
    for row in all.iter().filter(nothing).take(most) {
        let line = if has_intervals(all) {
            change_cells(page, row, "not tested")
        } else {
            let shown = Shown::new(row.metric.unit, Scale::Absolute);
            let [a, b, moved, _] = shown.cells(row.first, row.second, None);
            without_intervals(page, [&a, &b, &moved])
        };
        page.row(Tone::Plain, 2, words(row.metric), &line);
    }
}

/// Returns the name of a measure in a table.
fn words(metric: &Metric) -> &str {
    match metric.measure() {
        Some(Measure::WaitedShare) => "waited, % of CPU time needed",
        Some(Measure::ThrottledShare) => "throttled, % of CPU time needed",
        Some(Measure::RanShare) => "ran, % of CPU time needed",
        Some(Measure::TickShare) => "share of all CPU time",
        _ => metric_title(metric),
    }
}

/// Writes the periodic sources that appeared, disappeared or changed period.
fn beats(page: &mut Page, statement: &Changes<'_>, most: usize) {
    let all = &statement.record.beats;
    if most == usize::MAX && all.is_empty() {
        page.paragraph(Tone::Good, "  ", "no difference");
    }
    if all.is_empty() {
        return;
    }
    if most != usize::MAX {
        page.headings(Tone::Strong, "PERIODIC", &format!("{:>8}", "% CPU"));
    }
    for change in all.iter().take(most) {
        let (word, beat) = match change {
            BeatChange {
                first: None,
                second: Some(beat),
            } => ("new", beat),
            BeatChange {
                first: Some(beat),
                second: None,
            } => ("gone", beat),
            BeatChange {
                first: Some(_),
                second: Some(beat),
            } => ("changed", beat),
            BeatChange {
                first: None,
                second: None,
            } => continue,
        };
        let every = if page.width() >= ROOMY { "every " } else { "" };
        let kept = format!("{word:<7}  {every}{}  ", period(change, beat));
        let share = format!("{:>8}", percent(beat.share));
        let mut name = beat_name(beat);
        let cpus = cpu_names(beat.cpus.iter()).replace(TIE, " ");
        let with_cpus = format!("{name}, {cpus}");
        let taken = columns(&kept) + columns(&share) + INDENT;
        if page.width() >= ROOMY && taken + columns(&with_cpus) <= page.width() {
            name = with_cpus;
        }
        page.named_row(Tone::Plain, INDENT, (&kept, &name), &share);
    }
    let left = all.len().saturating_sub(most);
    if left > 0 {
        let text = format!("{left} more (--section repeats)");
        page.paragraph(Tone::Faint, "  ", &text);
    }
}

/// Formats a source's period. If it was different in the first recording, that period comes first.
fn period(change: &BeatChange, beat: &BeatLine) -> String {
    let before = change.first.as_ref().filter(|_| change.second.is_some());
    let before = before.map_or_else(String::new, |former| {
        format!("{} → ", short_period(former.rhythm.period))
    });
    format!("{before}{}", short_period(beat.rhythm.period))
}
