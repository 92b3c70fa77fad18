//! The page that compares paced loops.

use ticktax_model::pace::{Choice, Criterion, LoopSpec, PaceArm, PaceComparison};

use super::super::TextStyle;
use super::super::block::{Columns, Written};
use super::super::head;
use super::super::numbers::{counted, date, percent, quantile_or_blank};
use super::super::page::{Page, Tone, tied};
use super::{limitations, number};
use crate::view::View;

/// Renders a comparison of paced loops, which ends with a line break.
pub(in crate::text) fn pace_comparison(statement: &PaceComparison, style: &TextStyle) -> Written {
    let mut page = Page::new(*style);
    let title = format!(
        "ticktax: {} of a paced loop{}, started {}",
        counted(statement.arms.len() as u64, "variant"),
        head::in_world(statement.world),
        date(statement.began_unix),
    );
    page.line(Tone::Strong, &title);
    head::host(&mut page, &statement.machine);
    let policy = statement.policy.as_ref();
    let policy = policy.map_or_else(String::new, |policy| format!(", {policy}"));
    let place = format!(
        "on {}{policy}; each variant ran {} for {}, in rotation",
        tied(format!("CPU {}", statement.cpu)),
        counted(statement.rounds, "time"),
        tied(statement.turn),
    );
    page.paragraph(Tone::Plain, "Loops     ", &place);
    if let Some(why) = &statement.ended_early {
        page.paragraph(Tone::Warning, "Ended     ", &super::ended(why));
    }
    page.section("Frames");
    page.headings(
        Tone::Faint,
        "  rate work sleep rule",
        &cells("FPS", "lost", "late", &heading(statement.quantile), "CPU"),
    );
    for (place, row) in statement.arms.iter().enumerate() {
        let best = statement
            .choices
            .iter()
            .any(|choice| choice.best.contains(&place) && choice.by.is_some());
        let tone = if best { Tone::Good } else { Tone::Plain };
        page.row(
            tone,
            2,
            &settings(row),
            &loop_cells(row, statement.quantile),
        );
    }
    page.section("Best choice on this kernel");
    for choice in &statement.choices {
        let label = format!("{}/s, {} of work: ", number(choice.rate), choice.work);
        let advice = advice(choice, &statement.arms, statement.rounds);
        page.paragraph(Tone::Plain, &label, &advice);
    }
    let figures = statement.arms.iter().find_map(|row| row.figures.as_ref());
    let late = match figures.and_then(|figures| figures.overshot_threshold) {
        Some(from) => format!("more than {}", tied(from)),
        None => "more than 4 ms or a quarter of a period, whichever is less,"
            .replace("4 ms", &tied("4 ms")),
    };
    page.legend(&format!(
        "lost: expected frames that are missing, because they were dropped (the previous frame \
         overran, or the loop was asleep) or because delays, or the work with --rule fixed, \
         shifted all later frames. late: frames that started {late} after they were due. wait \
         p99: 99 of 100 frames started within this time after they were due, lost frames \
         included (p90 or p50 \
         if a variant has too few frames). CPU: share of a CPU, by the thread's own clock. \
         Variants are ranked by fewest frames lost or late, then shorter waits, then less CPU. \
         Differences that may be chance count as equal (tested run by run, at 5 % for all pairs \
         and criteria \
         together), and so do CPU times that differ by less than a tenth.",
    ));
    limitations(&mut page, &statement.limitations);
    let written = page.finish();
    if style.view == View::First && style.explain {
        let legends = TextStyle {
            view: View::legends(),
            ..*style
        };
        return written
            .then_blank()
            .then(pace_comparison(statement, &legends));
    }
    written
}

/// Joins names, as in `a, b and c`.
fn listed(names: &[String]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        names => names.concat(),
    }
}

fn cells(fps: &str, lost: &str, late: &str, wait: &str, cpu: &str) -> Columns {
    Columns::right([(6, fps), (5, lost), (5, late), (8, wait), (7, cpu)])
}

/// Returns the heading of the column that shows waits.
fn heading(q: Option<f64>) -> String {
    let q = q.map_or_else(String::new, |q| format!(" p{:.0}", q * 100.0));
    format!("wait{q}")
}

/// Returns the arm's loop.
pub(crate) fn settings(row: &PaceArm) -> String {
    let LoopSpec {
        rate,
        work,
        sleep,
        rule,
        ..
    } = row.spec;
    format!("{}/s {work} {sleep} {rule}", number(rate))
}

fn loop_cells(row: &PaceArm, q: Option<f64>) -> Columns {
    let Some(figures) = &row.figures else {
        return cells("-", "-", "-", "-", "-");
    };
    let wait = figures.wait.as_ref();
    let wait = wait.zip(q);
    let wait = wait.map_or_else(String::new, |(wait, q)| quantile_or_blank(wait, q));
    cells(
        &figures
            .average_fps
            .map_or_else(String::new, |fps| format!("{fps:.2}")),
        &(figures.dropped + figures.slipped.unwrap_or_default()).to_string(),
        &figures.late.to_string(),
        &wait,
        &percent(row.cpu_time.share_of(row.elapsed)),
    )
}

fn advice(choice: &Choice, rows: &[PaceArm], turns: u64) -> String {
    let group = rows
        .iter()
        .filter(|row| (row.spec.rate - choice.rate).abs() < 1e-9 && row.spec.work == choice.work)
        .count();
    let names: Vec<String> = choice
        .best
        .iter()
        .filter_map(|&place| rows.get(place))
        .map(|row| tied(format!("{} {}", row.spec.sleep, row.spec.rule)))
        .collect();
    let reason = match choice.by {
        _ if names.is_empty() => {
            return "no frame started, so there is nothing to \
            choose"
                .to_owned();
        }
        _ if group == 1 => {
            return "only one variant ran, so there is nothing to compare".to_owned();
        }
        None if turns < 3 => {
            let turns = counted(turns, "run");
            return format!(
                "undecided between {}: {turns} of each are too few to tell a difference from \
                 chance. Use more --rounds",
                listed(&names)
            );
        }
        None => return format!("no measurable difference between {}", listed(&names)),
        Some(Criterion::LateFrames) => "fewest frames lost or late",
        Some(Criterion::Lateness) => "as few frames lost or late as any other, and shorter waits",
        Some(Criterion::Cpu) => {
            "as few frames lost or late as any other, equally short waits, and less CPU time"
        }
    };
    match &names[..] {
        [only] => format!("{only}: {reason}"),
        several => format!(
            "{} are equally good, and better than the others: {reason}",
            listed(several)
        ),
    }
}
