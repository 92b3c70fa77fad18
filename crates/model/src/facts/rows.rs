//! Converts facts to table rows.

use std::sync::Arc;

use super::{Table, Window};
use crate::Histogram;
use crate::finding::Finding;
use crate::incident::{IncidentEntry, IncidentGroup, LossCause};
use crate::machine::Machine;
use crate::recording::Stack;
use crate::totals::IntervalSum;

/// A value in a table row.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
pub enum Cell {
    /// No value.
    None,
    /// Text.
    Text(Arc<str>),
    /// An integer.
    Number(i64),
    /// A floating-point number.
    Real(f64),
    /// Bytes, such as an encoded histogram.
    Bytes(Vec<u8>),
    /// Integers.
    List(Vec<i64>),
}

impl Cell {
    pub(super) fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    fn some(text: Option<&str>) -> Self {
        text.map_or(Self::None, Self::text)
    }

    fn count(count: u64) -> Self {
        Self::Number(i64::try_from(count).unwrap_or(i64::MAX))
    }

    pub(super) fn maybe(number: Option<impl Into<i64>>) -> Self {
        number.map_or(Self::None, |number| Self::Number(number.into()))
    }
}

/// A row of a table, without the host column that all tables share.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    table: Table,
    time_unix_ms: i64,
    cells: Vec<Cell>,
}

/// Periods at which the incidents of one group recur.
#[derive(Clone, Copy, Debug)]
pub struct BeatFact<'a> {
    /// When the periods were searched for, in ms since 1970.
    pub time_unix_ms: i64,
    /// The similar incidents.
    pub group: &'a IncidentGroup,
}

/// Properties of a host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostFact {
    /// When the agent started or detected a change in these properties, in ms since 1970.
    pub time_unix_ms: i64,
    /// Start of the agent, in ms since 1970.
    pub began_unix_ms: i64,
    /// Version of ticktax.
    pub tool_version: String,
    /// Mitigations of CPU vulnerabilities, each as `VULNERABILITY: MITIGATION`, sorted by name.
    pub mitigations: Vec<String>,
    /// Product name according to the firmware. On EC2, this is the instance type.
    pub machine_type: Option<String>,
    /// Identifies the installation, even after its host name has changed.
    pub machine_id: Option<String>,
    /// All other properties.
    pub machine: Machine,
}

impl HostFact {
    /// Returns whether `other` describes the same properties, ignoring the times.
    pub fn is_like(&self, other: &Self) -> bool {
        self.row().cells[2..] == other.row().cells[2..]
    }

    /// Returns the table row of this fact.
    pub fn row(&self) -> Row {
        let machine = &self.machine;
        let shown = |text: Option<String>| Cell::some(text.as_deref());
        Row {
            table: Table::Host,
            time_unix_ms: self.time_unix_ms,
            cells: vec![
                Cell::Number(self.time_unix_ms),
                Cell::Number(self.began_unix_ms),
                Cell::text(&machine.kernel),
                Cell::text(&machine.arch),
                Cell::maybe(machine.hz_configured),
                shown(machine.tick_mode.as_ref().map(ToString::to_string)),
                Cell::some(machine.clocksource.as_deref()),
                shown(machine.preemption.as_ref().map(ToString::to_string)),
                Cell::some(machine.hypervisor.as_deref()),
                Cell::text(&machine.online.to_string()),
                Cell::text(&self.mitigations.join("; ")),
                Cell::text(&self.tool_version),
                Cell::some(self.machine_type.as_deref()),
                Cell::some(self.machine_id.as_deref()),
            ],
        }
    }
}

impl BeatFact<'_> {
    /// Returns one table row per period.
    pub fn rows(&self) -> impl Iterator<Item = Row> {
        let (time, group) = (self.time_unix_ms, self.group);
        group.beats.iter().map(move |beat| Row {
            table: Table::Beats,
            time_unix_ms: time,
            cells: vec![
                Cell::text(&group.signature.program),
                Cell::text(group.signature.kind.name()),
                Cell::text(&group.signature.culprit),
                Cell::Number(time),
                Cell::Real(beat.period),
                Cell::Real(beat.low),
                Cell::Real(beat.high),
                Cell::Real(beat.false_alarm),
                Cell::count(beat.seen),
                Cell::count(beat.expected),
                Cell::Number(beat.jitter.0),
                Cell::count(group.count),
                Cell::Number(group.first_unix_ms),
                Cell::Number(group.last_unix_ms),
            ],
        })
    }
}

impl Finding {
    /// Returns the table row for this finding, made at `time_unix_ms` (ms since 1970).
    pub fn row(&self, time_unix_ms: i64) -> Row {
        Row {
            table: Table::Findings,
            time_unix_ms,
            cells: vec![
                Cell::text(&self.rule),
                Cell::Number(time_unix_ms),
                Cell::text(self.severity.name()),
                Cell::text(self.confidence.name()),
                Cell::text(&self.title),
                Cell::text(&self.configured),
                Cell::text(&self.effective),
                Cell::text(&self.measured),
                Cell::text(&self.remedy),
            ],
        }
    }
}

impl IncidentEntry {
    /// Returns the table row of this incident.
    pub fn row(&self) -> Row {
        let incident = &self.incident;
        let signature = incident.signature();
        let thread = incident.thread.as_ref();
        let known = |number: i32| (number > 0).then_some(number);
        Row {
            table: Table::Incidents,
            time_unix_ms: incident.at_unix_ms,
            cells: vec![
                Cell::text(&signature.program),
                Cell::text(signature.kind.name()),
                Cell::text(&signature.culprit),
                Cell::Number(incident.at_unix_ms),
                Cell::count(self.number),
                Cell::Number(incident.lasted.0),
                Cell::text(thread.map_or("", |thread| &thread.name)),
                Cell::maybe(thread.and_then(|thread| known(thread.pid))),
                Cell::maybe(thread.and_then(|thread| known(thread.tid))),
                Cell::maybe(incident.cpu.map(|cpu| cpu.0)),
                Cell::maybe(incident.waited_on.map(|cpu| cpu.0)),
                Cell::some(incident.woken_by.as_deref()),
                Cell::text(&incident.chain.join(" → ")),
                Cell::text(&incident.text),
                Cell::count(incident.triggers),
                Cell::count(incident.events_lost),
                Cell::some(self.recording.as_deref()),
                Cell::some(self.not_kept.map(LossCause::name)),
                stack_id(incident.ran_stack()),
                stack_id(incident.blocked_stack()),
                stack_id(incident.release_stack()),
            ],
        }
    }

    /// Returns the table rows of the stacks that this incident's row refers to.
    pub fn stack_rows(&self) -> impl Iterator<Item = Row> {
        let incident = &self.incident;
        let time_unix_ms = incident.at_unix_ms;
        let stacks = [
            incident.ran_stack(),
            incident.blocked_stack(),
            incident.release_stack(),
        ];
        stacks.into_iter().flatten().map(move |stack| Row {
            table: Table::Stacks,
            time_unix_ms,
            cells: vec![
                Cell::Number(stack.id()),
                Cell::Number(time_unix_ms),
                Cell::text(&stack.to_string()),
            ],
        })
    }
}

fn stack_id(stack: Option<Stack>) -> Cell {
    Cell::maybe(stack.map(|stack| stack.id()))
}

impl Window {
    /// Returns the rows of the window: its accounts, then its ticks. If `lists` is true, each
    /// histogram is also written as two lists.
    pub fn rows(&self, lists: bool) -> impl Iterator<Item = Row> {
        let accounts = self.accounts.iter().map(move |(key, sum)| {
            let mut cells = vec![
                Cell::Text(Arc::clone(&key.name)),
                Cell::text(key.class.name()),
                Cell::Number(key.cpu.0.into()),
            ];
            cells.extend(self.sums(sum, lists));
            Row {
                table: Table::Accounts(self.kind),
                time_unix_ms: self.begin_unix_ms,
                cells,
            }
        });
        let ticks = self.ticks.iter().map(move |(cpu, sum)| {
            let mut cells = vec![Cell::Number(cpu.0.into())];
            cells.extend(self.sums(sum, lists));
            Row {
                table: Table::Tick(self.kind),
                time_unix_ms: self.begin_unix_ms,
                cells,
            }
        });
        accounts.chain(ticks)
    }

    /// Returns the values of the columns that describe `sum`, starting with the column `time`.
    fn sums(&self, sum: &IntervalSum, lists: bool) -> impl Iterator<Item = Cell> {
        let cells = [
            Cell::Number(self.begin_unix_ms),
            Cell::Number(self.length.0),
            Cell::Number(sum.time.0),
            Cell::count(sum.count),
            Cell::Bytes(sum.histogram.to_blob()),
        ];
        let lists = lists.then(|| histogram_lists(&sum.histogram));
        cells.into_iter().chain(lists.into_iter().flatten())
    }
}

/// Returns the starts and the counts of a histogram's non-empty buckets.
fn histogram_lists(histogram: &Histogram) -> [Cell; 2] {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let buckets = histogram.buckets();
    let (from, counts) = buckets
        .map(|bucket| (bucket.from.0, number(bucket.count)))
        .unzip();
    [Cell::List(from), Cell::List(counts)]
}

impl Row {
    pub(super) fn new(table: Table, time_unix_ms: i64, cells: Vec<Cell>) -> Self {
        Self {
            table,
            time_unix_ms,
            cells,
        }
    }

    /// The table.
    pub fn table(&self) -> Table {
        self.table
    }

    /// Returns the values of all columns except the host column, which comes first.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Returns the time that determines which day the row is stored under, in ms since 1970.
    pub fn time_unix_ms(&self) -> i64 {
        self.time_unix_ms
    }
}

#[cfg(test)]
mod tests;
