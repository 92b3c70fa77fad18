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
    let (from, counts) = histogram.buckets().unzip();
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
mod tests {
    use std::collections::BTreeMap;

    use super::{BeatFact, Cell, HostFact, Row};
    use crate::beats::Periodicity;
    use crate::facts::table::ColumnKind;
    use crate::facts::{Window, WindowLength};
    use crate::finding::{Confidence, Finding, Severity};
    use crate::incident::{
        Incident, IncidentEntry, IncidentGroup, LossCause, RanInstead, Signature, TriggerKind,
    };
    use crate::machine::Machine;
    use crate::recording::Stack;
    use crate::sampled_code::{SampledCode, SampledPlace};
    use crate::statement::Class;
    use crate::totals::{AccountKey, AccountSums, IntervalSum};
    use crate::victim::{Release, WaitPlace};
    use crate::{Cpu, Kind, Nanos};

    fn host(time_unix_ms: i64) -> HostFact {
        HostFact {
            time_unix_ms,
            began_unix_ms: time_unix_ms,
            tool_version: "1".to_owned(),
            mitigations: Vec::new(),
            machine_type: None,
            machine_id: None,
            machine: Machine::default(),
        }
    }

    fn window() -> Window {
        let key = AccountKey {
            class: Class::Irq,
            name: "x".into(),
            cpu: Cpu(1),
        };
        Window {
            kind: WindowLength::Minute,
            begin_unix_ms: 5,
            length: Nanos(7),
            accounts: AccountSums::from([(key, IntervalSum::default())]),
            ticks: BTreeMap::from([(Cpu(1), IntervalSum::default())]),
        }
    }

    fn incident() -> IncidentEntry {
        IncidentEntry {
            number: 3,
            recording: None,
            bytes: 0,
            not_kept: Some(LossCause::DiskFull),
            incident: Incident {
                lasted: Nanos::ZERO,
                text: "here".to_owned(),
                ..Incident::new(TriggerKind::Mark, 5)
            },
        }
    }

    fn group() -> IncidentGroup {
        IncidentGroup {
            signature: Signature {
                kind: TriggerKind::Wait,
                program: "game".to_owned(),
                culprit: "backup".to_owned(),
            },
            count: 9,
            time: Nanos(9),
            max: Nanos(1),
            max_number: 1,
            first_unix_ms: 1,
            last_unix_ms: 2,
            last_number: 9,
            at_unix_ms: vec![1, 2],
            chain: Vec::new(),
            chain_count: 0,
            beats: vec![Periodicity::default()],
        }
    }

    fn finding() -> Finding {
        Finding {
            rule: "a-rule".to_owned(),
            title: String::new(),
            configured: String::new(),
            effective: String::new(),
            measured: String::new(),
            confidence: Confidence::Likely,
            severity: Severity::Note,
            cost: None,
            remedy: String::new(),
            proposal: None,
        }
    }

    /// Asserts that each value has the type of its column.
    fn assert_fits(row: &Row) {
        let columns = &row.table.columns()[1..=row.cells.len()];
        for (column, cell) in columns.iter().zip(&row.cells) {
            let fits = match column.kind {
                ColumnKind::Text => matches!(cell, Cell::Text(_)),
                ColumnKind::Real => matches!(cell, Cell::Real(_)),
                ColumnKind::Bytes => matches!(cell, Cell::Bytes(_)),
                ColumnKind::List => matches!(cell, Cell::List(_)),
                _ => matches!(cell, Cell::Number(_)),
            };
            let none = column.optional && *cell == Cell::None;
            assert!(fits || none, "{}: {cell:?}", column.name);
        }
    }

    #[test]
    fn values_have_the_types_of_their_columns() {
        let (window, group) = (window(), group());
        let beats = BeatFact {
            time_unix_ms: 5,
            group: &group,
        };
        let mut rows: Vec<Row> = window.rows(true).chain(beats.rows()).collect();
        rows.extend([host(5).row(), finding().row(5), incident().row()]);
        let mut blocked = incident();
        blocked.incident.place = Some(WaitPlace {
            syscall: Some("mmap".to_owned()),
            ..WaitPlace::default()
        });
        rows.extend([blocked.row()].into_iter().chain(blocked.stack_rows()));
        assert_eq!(rows.len(), 8);
        for row in &rows {
            assert_eq!(row.cells.len() + 1, row.table.columns().len(), "{row:?}");
            assert_eq!(row.time_unix_ms, 5);
            assert_fits(row);
        }
        // Rows without the lists lack the last two columns. The host column never appears in
        // `cells`.
        let bare: Vec<Row> = window.rows(false).collect();
        assert_eq!(bare[0].cells.len() + 3, bare[0].table.columns().len());
        assert_fits(&bare[0]);
    }

    /// Returns the value of `row` in the column `name`.
    fn cell<'r>(row: &'r Row, name: &str) -> &'r Cell {
        let mut columns = row.table.columns()[1..].iter();
        let position = columns.position(|column| column.name == name);
        &row.cells[position.unwrap()]
    }

    #[test]
    fn values_of_one_type_are_in_their_own_columns() {
        let mut host = host(5);
        host.began_unix_ms = 4;
        host.machine.kernel = "kernel".to_owned();
        host.machine.arch = "arch".to_owned();
        host.machine.clocksource = Some("clocksource".to_owned());
        host.machine.hypervisor = Some("hypervisor".to_owned());
        let row = host.row();
        for name in ["kernel", "arch", "clocksource", "hypervisor"] {
            assert_eq!(cell(&row, name), &Cell::text(name));
        }
        assert_eq!(cell(&row, "time"), &Cell::Number(5));
        assert_eq!(cell(&row, "agent_began"), &Cell::Number(4));

        let finding = Finding {
            title: "title".to_owned(),
            configured: "configured".to_owned(),
            effective: "effective".to_owned(),
            measured: "measured".to_owned(),
            remedy: "remedy".to_owned(),
            ..finding()
        };
        let row = finding.row(5);
        for name in ["title", "configured", "effective", "measured", "remedy"] {
            assert_eq!(cell(&row, name), &Cell::text(name));
        }
        assert_eq!(cell(&row, "severity"), &Cell::text(Severity::Note.name()));
        let likely = Cell::text(Confidence::Likely.name());
        assert_eq!(cell(&row, "confidence"), &likely);

        let mut group = group();
        group.beats = vec![Periodicity {
            period: 2.0,
            low: 1.0,
            high: 3.0,
            false_alarm: 0.5,
            seen: 6,
            expected: 7,
            jitter: Nanos(8),
            ..Periodicity::default()
        }];
        let beats = BeatFact {
            time_unix_ms: 5,
            group: &group,
        };
        let row = beats.rows().next().unwrap();
        for (name, real) in [
            ("period_ns", 2.0),
            ("period_low_ns", 1.0),
            ("period_high_ns", 3.0),
            ("false_alarm_probability", 0.5),
        ] {
            assert_eq!(cell(&row, name), &Cell::Real(real), "{name}");
        }
        for (name, number) in [
            ("seen", 6),
            ("expected", 7),
            ("jitter_ns", 8),
            ("incidents", 9),
            ("first", 1),
            ("last", 2),
        ] {
            assert_eq!(cell(&row, name), &Cell::Number(number), "{name}");
        }

        let mut entry = incident();
        entry.incident.lasted = Nanos(6);
        entry.incident.cpu = Some(Cpu(1));
        entry.incident.waited_on = Some(Cpu(2));
        entry.incident.triggers = 7;
        entry.incident.events_lost = 8;
        let row = entry.row();
        for (name, number) in [
            ("number", 3),
            ("lasted_ns", 6),
            ("cpu", 1),
            ("waited_on", 2),
            ("triggers", 7),
            ("events_lost", 8),
        ] {
            assert_eq!(cell(&row, name), &Cell::Number(number), "{name}");
        }
        assert_eq!(cell(&row, "words"), &Cell::text("here"));
        assert_eq!(cell(&row, "blocked_stack"), &Cell::None);
    }

    #[test]
    fn an_incident_refers_to_its_stacks() {
        let mut entry = incident();
        let owned = |name: &str| Some(name.to_owned());
        entry.incident.place = Some(WaitPlace {
            syscall: owned("mmap"),
            function: owned("down_write"),
            caller: owned("vm_mmap_pgoff"),
            release: Some(Release {
                function: owned("__mm_populate"),
                syscall: owned("mlock"),
            }),
        });
        entry.incident.ran = vec![RanInstead {
            name: "game".to_owned(),
            kind: Kind::Task,
            pids: Vec::new(),
            time: Nanos(1),
            count: 1,
            code: Some(SampledCode {
                samples: 2,
                places: vec![SampledPlace {
                    function: "update".to_owned(),
                    file: owned("gamesrv"),
                    samples: 2,
                    ..SampledPlace::default()
                }],
                walk: None,
            }),
        }];
        let row = entry.row();
        let stacks: Vec<Row> = entry.stack_rows().collect();
        let expected = [
            ("ran_stack", "gamesrv;update"),
            ("blocked_stack", "mmap_[k];vm_mmap_pgoff_[k];down_write_[k]"),
            ("release_stack", "mlock_[k];__mm_populate_[k]"),
        ];
        assert_eq!(stacks.len(), expected.len());
        for ((column, text), stack) in expected.into_iter().zip(&stacks) {
            assert_eq!(cell(&row, column), cell(stack, "stack_id"), "{column}");
            assert_eq!(cell(stack, "stack"), &Cell::text(text));
        }
        // IDs must stay the same in every version, because files of several versions are joined.
        assert_eq!(
            Stack::from_folded("a_[k];b").id(),
            6_348_137_325_591_645_175
        );
    }

    #[test]
    fn facts_are_alike_regardless_of_their_times() {
        assert!(host(1).is_like(&host(2)));
        let mut changed = host(1);
        changed.machine.clocksource = Some("hpet".to_owned());
        assert!(!host(1).is_like(&changed));
    }
}
