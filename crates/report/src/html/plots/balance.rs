//! Shows the accounts as a balance sheet. Groups can be unfolded into accounts, and accounts into
//! their parts.

use std::cmp::Reverse;
use std::fmt::Write;

use ticktax_model::Nanos;
use ticktax_model::statement::{Account, Statement};

use super::{Plot, bar};
use crate::html::escape::text;
use crate::text::numbers::percent;
use crate::text::{Group, Topic, account_name};

/// Draws the balance sheet. Returns `None` if the statement has no accounts.
pub(super) fn plot(statement: &Statement) -> Option<Plot> {
    if statement.accounts.is_empty() {
        return None;
    }
    let whole = statement.balance.elapsed;
    let mut html =
        "<p class=\"legend\">Shares are relative to the total time of all CPUs. Open a category to \
         see its accounts, and an account to see its largest parts. The time of an account \
         includes its parts.</p>\n<div class=\"sheet\">\n"
            .to_owned();
    for group in Group::ALL {
        let of_group = statement.accounts.iter();
        let mut accounts: Vec<&Account> = of_group
            .filter(|account| Group::from_class(account.class) == group)
            .collect();
        accounts.sort_by_key(|account| Reverse(account.time));
        let time = accounts.iter().map(|account| account.time).sum();
        if !accounts.is_empty() {
            html.push_str("<details>\n<summary>");
            line(&mut html, group.title(), time, whole);
            html.push_str("</summary>\n");
            for account in accounts {
                self::account(&mut html, account, whole);
            }
            html.push_str("</details>\n");
        }
    }
    let sum = statement.accounts.iter().map(|account| account.time).sum();
    html.push_str("<div class=\"sum\">");
    line(&mut html, "Total", sum, whole);
    html.push_str("</div>\n</div>\n");
    Some(Plot {
        id: "balance",
        title: "CPU time by category",
        topic: Topic::Other,
        html,
    })
}

fn account(out: &mut String, account: &Account, whole: Nanos) {
    let name = account_name(account);
    if account.parts.is_empty() {
        out.push_str("<div>");
        line(out, &name, account.time, whole);
        out.push_str("</div>\n");
        return;
    }
    out.push_str("<details>\n<summary>");
    line(out, &name, account.time, whole);
    out.push_str("</summary>\n");
    for part in &account.parts {
        out.push_str("<div>");
        line(out, &part.name, part.time, whole);
        out.push_str("</div>\n");
    }
    out.push_str("</details>\n");
}

/// Writes a line with a name, its time, its share of the total, and a bar.
fn line(out: &mut String, name: &str, time: Nanos, whole: Nanos) {
    let share = time.share_of(whole);
    let _ = write!(
        out,
        "<span class=\"line\"><span class=\"name\">{}</span> <span title=\"{} ns\">{time}</span> \
         <span title=\"{share}\">{}</span> ",
        text(name),
        time.0,
        text(&percent(share))
    );
    bar(out, share, "part");
    out.push_str("</span>");
}
