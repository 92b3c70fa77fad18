//! The table of CPU time, which lists every account by group. The columns add up.

use ticktax_model::Nanos;
use ticktax_model::statement::{Account, Class, Part, Statement};

use super::cells::{Cells, Scale, by_name};
use super::group_names::{GroupNames, NAME_WIDTH, with_group};
use super::numbers::{OUTSIDE, counted, displayed, percent, rate, time_or_blank};
use super::page::{Page, Tone, tied};
use super::{Group, wall};

/// Minimum number of accounts named per group.
const SHOWN: usize = 4;
/// Maximum number of accounts named per group.
const SHOWN_AT_MOST: usize = 10;
/// Minimum share of all CPU time that gives an account its own line.
const WORTH_A_LINE: f64 = 0.000_5;
/// Maximum number of parts shown per account.
const PARTS: usize = 3;
/// Minimum share of an account that gives one of its parts its own line.
const WORTH_A_PART: f64 = 0.05;

/// Suffix for an account whose time comes from the kernel's counters rather than from the trace.
const SAMPLED: &str = " (sampled)";

pub(super) fn write(page: &mut Page, statement: &Statement) {
    page.section("CPU time by account");
    if statement.accounts.is_empty() {
        page.paragraph(Tone::Warning, "", "Nothing was recorded.");
        return;
    }
    let scale = Scale {
        whole: statement.balance.elapsed,
        wall: wall(statement),
    };
    taken(page, &statement.accounts, scale);
    page.headings(Tone::Faint, "", &Cells::headings().columns());
    let names = GroupNames::new(statement);
    for group in Group::ALL {
        let mut accounts: Vec<&Account> = statement
            .accounts
            .iter()
            .filter(|account| Group::from_class(account.class) == group)
            .collect();
        accounts.sort_by_key(|account| std::cmp::Reverse(account.time));
        if !accounts.is_empty() {
            write_group(page, group, &accounts, scale, &names);
        }
    }
    let sum = statement.accounts.iter().map(|account| account.time).sum();
    page.row(
        Tone::Strong,
        0,
        "Sum",
        &Cells::from_time(sum, scale.whole).columns(),
    );
    page.legend(&legend(&statement.accounts));
}

/// Writes the summary sentence about how much time the kernel and the hypervisor took from
/// programs.
fn taken(page: &mut Page, accounts: &[Account], scale: Scale) {
    let taken = accounts.iter().filter(|account| account.class.is_taken());
    // An account from sampled counters can be negative, but must not reduce the sum of the other
    // accounts.
    let taken: Nanos = taken.map(|account| account.time.max(Nanos::ZERO)).sum();
    let text = format!(
        "The kernel and the hypervisor took {} of {} ({}), including unexplained time.",
        tied(taken),
        tied(scale.whole),
        tied(percent(taken.share_of(scale.whole))),
    );
    page.paragraph(Tone::Plain, "", &text);
}

/// Explains the terms used in the table.
fn legend(accounts: &[Account]) -> String {
    let mut legend = "share: share of the time of all CPUs. per s: intervals per second, on all \
        CPUs. median, p99, max: wall-clock length of one interval. Indented lines: the largest \
        parts of the account above, already counted in it."
        .to_owned();
    let has = |class| accounts.iter().any(|account| account.class == class);
    if has(Class::EntryExit) {
        legend += " kernel entry and exit: around the kernel work above.";
    }
    if has(Class::HypervisorOrFirmware) {
        legend += " hypervisor or firmware: the kernel provably ran nothing, so one of these used \
            the CPU.";
    }
    if has(Class::Unexplained) {
        legend += " unexplained: no known source accounts for it.";
    }
    if accounts.iter().any(|account| account.sampled) {
        legend += " sampled: from the kernel's counters, which many kernels update only at the \
            tick.";
    }
    legend
}

fn write_group(
    page: &mut Page,
    group: Group,
    accounts: &[&Account],
    scale: Scale,
    names: &GroupNames<'_>,
) {
    let sum = accounts.iter().map(|account| account.time).sum();
    let cells = Cells::from_time(sum, scale.whole);
    // If the group's only account has the same name as the group, one line serves for both.
    if let [only] = accounts
        && only.parts.is_empty()
        && only.name.eq_ignore_ascii_case(group.title())
    {
        let name = format!("{}{}", group.title(), mark(only));
        place(page, only);
        page.row(
            Tone::Strong,
            0,
            &name,
            &account_cells(only, scale).columns(),
        );
        return;
    }
    page.row(Tone::Strong, 0, group.title(), &cells.columns());
    let shown = how_many(accounts, scale.whole);
    for account in &accounts[..shown] {
        let tone = if account.class == Class::Unexplained {
            Tone::Warning
        } else {
            Tone::Plain
        };
        place(page, account);
        let service = names.shown(account.pid.as_slice());
        let title = with_group(&name(account), service, NAME_WIDTH);
        page.row(tone, 2, &title, &account_cells(account, scale).columns());
        write_parts(page, account, scale);
    }
    let others = &accounts[shown..];
    if !others.is_empty() {
        let cells = scale.others(others.iter().map(|account| {
            let intervals = &account.intervals;
            (account.time, intervals.count, intervals.max)
        }));
        page.row(
            Tone::Plain,
            2,
            &counted(others.len() as u64, "other"),
            &cells.columns(),
        );
    }
}

/// Returns how many accounts in a group to name. Unexplained time is always named. If that would
/// leave out just one account, it is named as well.
fn how_many(accounts: &[&Account], whole: Nanos) -> usize {
    let small = |account: &Account| account.time.share_of(whole).abs() < WORTH_A_LINE;
    let large = accounts
        .iter()
        .rposition(|account| !small(account) || account.class == Class::Unexplained)
        .map_or(0, |last| last + 1);
    by_name(accounts.len(), large.clamp(SHOWN, SHOWN_AT_MOST))
}

/// Makes the next line link to the account's longest interval.
fn place(page: &mut Page, account: &Account) {
    if let Some(longest) = account.longest {
        page.place(longest);
    }
}

fn account_cells(account: &Account, scale: Scale) -> Cells {
    scale.cells(account.time, &account.intervals)
}

fn write_parts(page: &mut Page, account: &Account, scale: Scale) {
    // A single part with the account's own name adds no information.
    if matches!(&*account.parts, [only] if only.name == account.name) {
        return;
    }
    let worth = |part: &&Part| part.time.share_of(account.time) >= WORTH_A_PART;
    for part in account.parts.iter().filter(worth).take(PARTS) {
        let cells = Cells {
            rate: rate(part.count, scale.wall),
            max: time_or_blank(part.max),
            ..Cells::from_time(part.time, scale.whole)
        };
        page.row(Tone::Faint, 6, &part.name, &cells.columns());
    }
}

fn mark(account: &Account) -> &'static str {
    if account.sampled { SAMPLED } else { "" }
}

/// Returns an account's display name, which is extended if the name alone is ambiguous.
pub(crate) fn name(account: &Account) -> String {
    let name = &account.name;
    match (account.class, account.pid) {
        (Class::Program, Some(pid)) => format!("{name} ({pid})"),
        (Class::Softirq, _) if !account.sampled => format!("softirq {name}"),
        (Class::Tool, _) => "its own work".to_owned(),
        (Class::Probe, _) => "its probes (idle time)".to_owned(),
        (Class::EntryExit, _) => "kernel entry and exit".to_owned(),
        (Class::HypervisorOrFirmware, _) => format!("{OUTSIDE}{}", mark(account)),
        _ => format!("{}{}", displayed(name), mark(account)),
    }
}
