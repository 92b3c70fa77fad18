//! The pages about the lab's kernels: cached kernels, newly built kernels, and cases that were run
//! on kernels.

use ticktax_model::kernels::{
    Allowance, BuiltKernel, GuestClock, KernelBuild, KernelList, KernelRow, KernelTable,
    KernelsStatement,
};

use super::block::Written;
use super::case::{head, line, remarks, section};
use super::{Paged, TextStyle};

impl Paged for KernelsStatement {
    fn page(&self, _: &TextStyle) -> Written {
        Written::verbatim(kernels(self))
    }
}

impl Paged for KernelList {
    fn page(&self, _: &TextStyle) -> Written {
        Written::verbatim(list(self))
    }
}

impl Paged for KernelBuild {
    fn page(&self, _: &TextStyle) -> Written {
        Written::verbatim(built(self))
    }
}

/// Width of the longest bar in a chart, in characters.
const PLOT: usize = 24;

/// Mark for a row that is too far from its expected value.
const OFF: &str = "off";
/// Mark for a row that was used to calibrate the expected values.
const FIT: &str = "fit";

/// Lists the kernels in the lab's cache.
pub(super) fn list(list: &KernelList) -> String {
    let mut page = String::new();
    if list.kernels.is_empty() {
        line(
            &mut page,
            "The lab's cache has no kernel. `ticktax lab build --hz 250` builds one, and \
             `ticktax lab run --kernel linux-image-cloud-amd64 -- pace` fetches Debian's.",
        );
    }
    for kernel in &list.kernels {
        let hz = kernel
            .hz
            .map_or_else(|| "?".to_owned(), |hz| hz.to_string());
        let megabytes = kernel.image_bytes as f64 / 1e6;
        let row = format!(
            "{:<36} {hz:>4} Hz  {megabytes:>5.1} MB  {}",
            kernel.name, kernel.origin
        );
        line(&mut page, &row);
    }
    page
}

/// Lists the kernels that `lab build` built.
pub(super) fn built(build: &KernelBuild) -> String {
    let mut page = String::new();
    let config = build.config.as_ref();
    let config = config.map_or_else(String::new, |file| format!(" with {file}"));
    line(
        &mut page,
        &format!("ticktax: kernels from {}{config}", build.source),
    );
    for kernel in &build.kernels {
        let BuiltKernel {
            name,
            release,
            hz,
            took,
            ..
        } = kernel;
        let how = if kernel.compiled {
            format!("built in {took}")
        } else {
            "cached".to_owned()
        };
        let row = format!("  {name:<14} {hz:>4} Hz  Linux {release:<12} {how}");
        line(&mut page, &row);
        line(&mut page, &format!("    {}", kernel.image));
    }
    page
}

/// Describes the guests' clock.
pub(super) fn clock(clock: GuestClock) -> String {
    match clock {
        GuestClock::Instructions { each } => format!(
            "advances by {} ns per instruction; caches, pipelines and hypervisors take no time",
            each.0
        ),
        GuestClock::Host => "the host's, including its noise".to_owned(),
    }
}

/// Shows a case's published values, the model's results, and measurements on real kernels.
pub(super) fn kernels(statement: &KernelsStatement) -> String {
    let mut page = head(&statement.head);
    let release = statement
        .release
        .as_deref()
        .unwrap_or("of several releases");
    line(&mut page, "");
    line(&mut page, &format!("Kernels: Linux {release}, in QEMU"));
    line(
        &mut page,
        &format!("Guest clock: {}", clock(statement.clock)),
    );
    for table in &statement.tables {
        section(&mut page, &title(table));
        let columns = columns(table);
        let max = table.rows.iter().map(|row| row.kernel).fold(0.0, f64::max);
        line(&mut page, &heading(&columns, 0));
        line(
            &mut page,
            &format!("{}  {}", heading(&columns, 1), legend(max)),
        );
        for row in &table.rows {
            let (figures, plot) = (figures(&columns, row), plot(table, row, max));
            line(&mut page, &format!("{figures}  {plot}"));
        }
    }
    marks(&mut page, &statement.tables);
    let (met, judged) = statement.met();
    section(
        &mut page,
        &format!("{met} of {judged} rows that were not used for calibration are within tolerance"),
    );
    for table in &statement.tables {
        if let Some(allowed) = table.allowed {
            let near = match allowed {
                Allowance::Of(max) if table.kernel_unit == "%" => {
                    format!("{max} percentage points")
                }
                Allowance::Of(max) => format!("{max} {}", table.kernel_unit),
                Allowance::Share(share) => format!("{} %", share * 100.0),
            };
            line(
                &mut page,
                &format!("  {}: within {near} of {}", table.what, table.expectation),
            );
        }
    }
    remarks(&mut page, "Remarks", &statement.remarks);
    page
}

/// Explains the marks next to the bars. Leaves out marks that the tables do not contain.
fn marks(page: &mut String, tables: &[KernelTable]) {
    let has = |mark: &str| {
        let in_table =
            |table: &KernelTable| table.rows.iter().any(|row| self::mark(table, row) == mark);
        tables.iter().any(in_table)
    };
    if has(OFF) || has(FIT) {
        line(page, "");
    }
    if has(OFF) {
        line(page, "  off: outside the tolerance of the table");
    }
    if has(FIT) {
        line(page, "  fit: this row calibrates the expectation");
    }
}

/// Returns the title of a table, which includes the kernel's boot parameters.
pub(crate) fn title(table: &KernelTable) -> String {
    let cmdline = match &*table.cmdline {
        "" => "no boot parameters",
        words => words,
    };
    format!("{} ({cmdline})", table.what)
}

/// A column of a table: its width, a two-line heading, and a function that formats its cells.
struct Column<'a> {
    width: usize,
    heading: [&'a str; 2],
    cell: fn(&KernelRow) -> Option<String>,
}

/// Returns the columns that have a value in at least one row.
fn columns(table: &KernelTable) -> Vec<Column<'_>> {
    let column = |width, first, second, cell| Column {
        width,
        heading: [first, second],
        cell,
    };
    let mut all = vec![
        column(7, "", "Hz", |row| Some(row.hz.to_string())),
        column(16, "published", &table.unit, |row| row.published.map(range)),
        column(16, "modelled", &table.unit, |row| row.modelled.map(number)),
        column(19, "expected", &table.kernel_unit, |row| {
            row.expected.map(range)
        }),
        column(19, "kernel", &table.kernel_unit, |row| {
            Some(number(row.kernel))
        }),
    ];
    all.retain(|column| table.rows.iter().any(|row| (column.cell)(row).is_some()));
    all
}

fn heading(columns: &[Column<'_>], place: usize) -> String {
    let each = columns.iter();
    let each = each.map(|column| format!("{:>1$}", column.heading[place], column.width));
    each.collect::<Vec<String>>().concat()
}

fn figures(columns: &[Column<'_>], row: &KernelRow) -> String {
    let each = columns.iter().map(|column| {
        let text = (column.cell)(row).unwrap_or_else(|| "-".to_owned());
        format!("{text:>0$}", column.width)
    });
    each.collect::<Vec<String>>().concat()
}

/// Returns the heading above the bars. A full bar stands for `max`.
pub(super) fn legend(max: f64) -> String {
    if max >= 0.005 {
        format!("kernel; a full bar is {}", number(max))
    } else if max > 0.0 {
        format!("kernel; a full bar is {max:.1e}")
    } else {
        "kernel; all are 0".to_owned()
    }
}

/// Returns the mark that shows whether a row is as expected, or an empty string if there is nothing
/// to mark.
fn mark(table: &KernelTable, row: &KernelRow) -> &'static str {
    match table.met(row) {
        Some(false) => OFF,
        Some(true) if row.fit => FIT,
        _ => "",
    }
}

/// Draws a row's bar, followed by the row's mark. A full bar stands for `max`.
fn plot(table: &KernelTable, row: &KernelRow, max: f64) -> String {
    let mark = mark(table, row);
    let share = if max > 0.0 { row.kernel / max } else { 0.0 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of the chart's width, between 0 and 1"
    )]
    let length = (share.clamp(0.0, 1.0) * PLOT as f64).round() as usize;
    format!("{:<PLOT$}  {mark}", "#".repeat(length))
}

/// Formats a range, or a single number if both ends look the same when printed.
fn range((low, high): (f64, f64)) -> String {
    let (low, high) = (number(low), number(high));
    if low == high {
        low
    } else {
        format!("{low} to {high}")
    }
}

/// Formats a number with about three digits.
fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 1_000.0 => format!("{value:.0}"),
        large if large >= 100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
