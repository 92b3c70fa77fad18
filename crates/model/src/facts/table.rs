//! The tables of facts and their columns.

use super::WindowLength;

/// A table of facts. Each table has a directory for its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// CPU time by account, in windows of this length.
    Accounts(WindowLength),
    /// CPU time of the tick's timer function, in windows of this length.
    Tick(WindowLength),
    /// Incidents caught by a flight recorder.
    Incidents,
    /// Stacks that incidents refer to.
    Stacks,
    /// Periods at which similar incidents recur.
    Beats,
    /// Waiting times of programs and groups.
    Waits,
    /// Settings that are configured but not in effect.
    Findings,
    /// Properties of hosts.
    Host,
}

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Text.
    Text,
    /// A 16-bit integer.
    Short,
    /// A 32-bit integer.
    Int,
    /// A 64-bit integer in a column with few distinct values.
    Few,
    /// A 64-bit integer.
    Long,
    /// A UTC time, in ms since 1970.
    Time,
    /// A floating-point number.
    Real,
    /// Bytes.
    Bytes,
    /// A list of 64-bit integers.
    List,
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Name of the column.
    pub name: &'static str,
    /// Type of the column's values.
    pub kind: ColumnKind,
    /// Whether a row may lack a value in this column.
    pub optional: bool,
}

const fn column(name: &'static str, kind: ColumnKind) -> Column {
    Column {
        name,
        kind,
        optional: false,
    }
}

const fn optional(name: &'static str, kind: ColumnKind) -> Column {
    Column {
        name,
        kind,
        optional: true,
    }
}

use ColumnKind::{Bytes, Few, Int, List, Long, Real, Short, Text, Time};

/// The first column of every table, which contains the name of the host.
const HOST: Column = column("host", Text);

/// Columns of the account tables. A file may lack the last two.
const ACCOUNTS: [Column; 11] = [
    HOST,
    column("name", Text),
    column("class", Text),
    column("cpu", Short),
    column("time", Time),
    column("window_ns", Few),
    column("time_ns", Long),
    column("count", Long),
    column("histogram", Bytes),
    column("histogram_from_ns", List),
    column("histogram_counts", List),
];

/// Columns of the tick tables. A file may lack the last two.
const TICK: [Column; 9] = [
    HOST,
    column("cpu", Short),
    column("time", Time),
    column("window_ns", Few),
    column("time_ns", Long),
    column("count", Long),
    column("histogram", Bytes),
    column("histogram_from_ns", List),
    column("histogram_counts", List),
];

const INCIDENTS: [Column; 22] = [
    HOST,
    column("program", Text),
    column("kind", Text),
    column("by", Text),
    column("time", Time),
    column("number", Long),
    column("lasted_ns", Long),
    column("thread", Text),
    optional("pid", Int),
    optional("tid", Int),
    optional("cpu", Short),
    optional("waited_on", Short),
    optional("woken_by", Text),
    column("chain", Text),
    column("words", Text),
    column("triggers", Long),
    column("events_lost", Long),
    optional("recording", Text),
    optional("not_kept", Text),
    optional("ran_stack", Long),
    optional("blocked_stack", Long),
    optional("release_stack", Long),
];

const STACKS: [Column; 4] = [
    HOST,
    column("stack_id", Long),
    column("time", Time),
    column("stack", Text),
];

const BEATS: [Column; 15] = [
    HOST,
    column("program", Text),
    column("kind", Text),
    column("by", Text),
    column("time", Time),
    column("period_ns", Real),
    column("period_low_ns", Real),
    column("period_high_ns", Real),
    column("false_alarm_probability", Real),
    column("seen", Long),
    column("expected", Long),
    column("jitter_ns", Long),
    column("incidents", Long),
    column("first", Time),
    column("last", Time),
];

const WAITS: [Column; 12] = [
    HOST,
    column("kind", Text),
    column("name", Text),
    column("time", Time),
    column("window_ns", Few),
    column("run_queue_wait_ns", Long),
    column("block_io_wait_ns", Long),
    optional("quota_periods", Long),
    optional("throttled_periods", Long),
    optional("throttled_ns", Long),
    optional("quota_ns", Long),
    optional("period_ns", Long),
];

const FINDINGS: [Column; 10] = [
    HOST,
    column("rule", Text),
    column("time", Time),
    column("severity", Text),
    column("confidence", Text),
    column("title", Text),
    column("configured", Text),
    column("effective", Text),
    column("measured", Text),
    column("remedy", Text),
];

const HOSTS: [Column; 15] = [
    HOST,
    column("time", Time),
    column("agent_began", Time),
    column("kernel", Text),
    column("arch", Text),
    optional("hz", Int),
    optional("tick", Text),
    optional("clocksource", Text),
    optional("preemption", Text),
    optional("hypervisor", Text),
    column("cpus", Text),
    column("mitigations", Text),
    column("tool_version", Text),
    optional("machine_type", Text),
    optional("machine_id", Text),
];

impl Table {
    /// All tables.
    pub const EVERY: [Self; 12] = [
        Self::Accounts(WindowLength::Minute),
        Self::Accounts(WindowLength::TenMinutes),
        Self::Accounts(WindowLength::Hour),
        Self::Tick(WindowLength::Minute),
        Self::Tick(WindowLength::TenMinutes),
        Self::Tick(WindowLength::Hour),
        Self::Incidents,
        Self::Stacks,
        Self::Beats,
        Self::Waits,
        Self::Findings,
        Self::Host,
    ];

    /// Returns the name of the table, which is also the name of its directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accounts(WindowLength::Minute) => "accounts",
            Self::Accounts(WindowLength::TenMinutes) => "accounts_10m",
            Self::Accounts(WindowLength::Hour) => "accounts_1h",
            Self::Tick(WindowLength::Minute) => "tick",
            Self::Tick(WindowLength::TenMinutes) => "tick_10m",
            Self::Tick(WindowLength::Hour) => "tick_1h",
            Self::Incidents => "incidents",
            Self::Stacks => "stacks",
            Self::Beats => "beats",
            Self::Waits => "waits",
            Self::Findings => "findings",
            Self::Host => "host",
        }
    }

    /// Returns the length of the table's time windows; `None` if the table has no windows.
    pub const fn window(self) -> Option<WindowLength> {
        match self {
            Self::Accounts(length) | Self::Tick(length) => Some(length),
            _ => None,
        }
    }

    /// Returns all columns of the table. A file may lack the last few.
    pub const fn columns(self) -> &'static [Column] {
        match self {
            Self::Accounts(_) => &ACCOUNTS,
            Self::Tick(_) => &TICK,
            Self::Incidents => &INCIDENTS,
            Self::Stacks => &STACKS,
            Self::Beats => &BEATS,
            Self::Waits => &WAITS,
            Self::Findings => &FINDINGS,
            Self::Host => &HOSTS,
        }
    }

    /// Returns the number of leading columns that the rows are sorted by.
    pub const fn sorted(self) -> usize {
        match self {
            Self::Accounts(_) | Self::Incidents | Self::Beats => 5,
            Self::Waits => 4,
            Self::Tick(_) | Self::Findings | Self::Stacks => 3,
            Self::Host => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Table;

    #[test]
    fn names_of_tables_and_columns_are_unique() {
        let names: BTreeSet<&str> = Table::EVERY.iter().map(|table| table.name()).collect();
        assert_eq!(names.len(), Table::EVERY.len());
        for table in Table::EVERY {
            let columns: BTreeSet<&str> =
                table.columns().iter().map(|column| column.name).collect();
            assert_eq!(columns.len(), table.columns().len(), "{}", table.name());
            assert!(
                table.columns()[..table.sorted()]
                    .iter()
                    .all(|column| !column.optional)
            );
        }
    }

    #[test]
    fn the_documentation_names_every_column() {
        let page = include_str!("../../../../docs/reference/data.md");
        for table in Table::EVERY {
            assert!(
                page.contains(&format!("`{}`", table.name())),
                "{}",
                table.name()
            );
            for column in table.columns() {
                let is_documented = page.contains(&format!("`{}`", column.name));
                assert!(is_documented, "{}.{}", table.name(), column.name);
            }
        }
    }
}
