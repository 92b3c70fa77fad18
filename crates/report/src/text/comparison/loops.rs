//! The page that compares paced loops.

use ticktax_model::comparison::{Comparison, LoopsRecord, Measure};
use ticktax_model::pace::{Choice, Criterion, PaceArm};

use super::super::TextStyle;
use super::super::block::Written;
use super::super::head;
use super::super::numbers::{counted, date};
use super::super::pace::{ended, limitations, number};
use super::super::page::{Page, Tone, tied};
use super::arms::{Column, NamedArm, headings, row};
use super::{arm_name, listed};
use crate::view::View;

/// Renders a comparison of paced loops, which ends with a line break.
pub(super) fn page(comparison: &Comparison, loops: &LoopsRecord, style: &TextStyle) -> Written {
    let mut page = Page::new(*style);
    let title = format!(
        "ticktax: {} of a paced loop{}, started {}",
        counted(comparison.arms.len() as u64, "variant"),
        head::in_world(loops.world),
        date(comparison.began_unix.unwrap_or_default()),
    );
    page.line(Tone::Strong, &title);
    if let Some(machine) = &comparison.machine {
        head::host(&mut page, machine);
    }
    let policy = loops.policy.as_ref();
    let policy = policy.map_or_else(String::new, |policy| format!(", {policy}"));
    let place = format!(
        "on {}{policy}; each variant ran {} for {}, in rotation",
        tied(format!("CPU {}", loops.cpu)),
        counted(loops.rounds, "time"),
        tied(loops.turn),
    );
    page.paragraph(Tone::Plain, "Loops     ", &place);
    if let Some(why) = &loops.ended_early {
        page.paragraph(Tone::Warning, "Ended     ", &ended(why));
    }
    page.section("Frames");
    let columns = columns(loops.quantile);
    headings(&mut page, "rate work sleep rule", &columns);
    for (place, arm) in comparison.arms.iter().enumerate() {
        let mut choices = loops.choices.iter();
        let best = choices.any(|choice| choice.best.contains(&place) && choice.by.is_some());
        let named = NamedArm {
            arm,
            name: arm_name(comparison, arm),
            tone: if best { Tone::Good } else { Tone::Plain },
        };
        row(&mut page, comparison, &columns, &named);
    }
    page.section("Best choice on this kernel");
    for choice in &loops.choices {
        let label = format!("{}/s, {} of work: ", number(choice.rate), choice.work);
        let advice = advice(choice, &loops.loops, loops.rounds);
        page.paragraph(Tone::Plain, &label, &advice);
    }
    let figures = loops.loops.iter().find_map(|row| row.figures.as_ref());
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
    limitations(&mut page, &loops.limitations);
    let written = page.finish();
    if style.view == View::First && style.explain {
        let legends = TextStyle {
            view: View::legends(),
            ..*style
        };
        return written
            .then_blank()
            .then(super::loops::page(comparison, loops, &legends));
    }
    written
}

/// Returns the columns. `q` is the quantile of the waits to show.
fn columns(q: Option<f64>) -> Vec<Column<'static>> {
    let wait = match q {
        Some(q) if q > 0.95 => ("wait p99", Measure::LateP99),
        Some(q) if q > 0.75 => ("wait p90", Measure::LateP90),
        _ => ("wait p50", Measure::LateMedian),
    };
    vec![
        ("FPS", Measure::Fps),
        ("lost", Measure::Lost),
        ("late", Measure::Late),
        wait,
        ("CPU", Measure::Cpu),
    ]
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
