//! Which of several ways to pace a loop to choose.

use ticktax_model::Nanos;
use ticktax_model::pace::{Choice, Criterion, Distribution, PaceVariant};

/// CPU times that differ by less than a tenth, or by a thousandth of a CPU, are alike.
const SAME_CPU: f64 = 1.1;
const SAME_SHARE: f64 = 1e-3;

/// The choice for each rate and work among `rows`.
///
/// The criteria are asked one after the other, and each keeps those that are not worse than its
/// best: fewest slots without a frame in time, the shortest waits (the highest quantile that every
/// row can tell, [`common_quantile`]), the least CPU time. What differs by no more than chance makes
/// it is the same. What the last leaves are as good as each other. A row without a frame is no
/// choice; a group without any has none.
pub fn choices(rows: &[PaceVariant]) -> Vec<Choice> {
    let q = common_quantile(rows);
    let mut groups: Vec<Choice> = Vec::new();
    for row in rows {
        let same = |choice: &Choice| is_same(choice.rate, row.rate) && choice.work == row.work;
        if !groups.iter().any(same) {
            groups.push(Choice {
                rate: row.rate,
                work: row.work,
                best: Vec::new(),
                by: None,
            });
        }
    }
    for choice in &mut groups {
        let mine = |&place: &usize| {
            let row: &PaceVariant = &rows[place];
            is_same(choice.rate, row.rate) && choice.work == row.work && row.figures.is_some()
        };
        choice.best = (0..rows.len()).filter(mine).collect();
        for criterion in [Criterion::LateFrames, Criterion::Lateness, Criterion::Cpu] {
            let before = choice.best.len();
            keep_best(&mut choice.best, rows, criterion, q);
            if choice.best.len() < before {
                choice.by = Some(criterion);
            }
        }
    }
    groups
}

fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

/// The highest of the quantiles 0.99, 0.9 and 0.5 of the waits that every row with a frame has
/// enough of them to tell; `None` where one has fewer than five.
pub fn common_quantile(rows: &[PaceVariant]) -> Option<f64> {
    let told = |q: f64| {
        rows.iter()
            .filter_map(wait)
            .all(|wait| wait.quantile(q).is_some())
    };
    [0.99, 0.9, 0.5].into_iter().find(|&q| told(q))
}

fn wait(row: &PaceVariant) -> Option<&Distribution> {
    row.figures.as_ref()?.wait.as_ref()
}

/// Leaves those that are as good as the best.
fn keep_best(places: &mut Vec<usize>, rows: &[PaceVariant], criterion: Criterion, q: Option<f64>) {
    let cost = |place: usize| match criterion {
        Criterion::LateFrames => share(late(&rows[place])),
        Criterion::Lateness => lateness(&rows[place], q).0 as f64,
        Criterion::Cpu => cpu_share(&rows[place]),
    };
    let Some(&best) = places.iter().min_by(|&&a, &&b| cost(a).total_cmp(&cost(b))) else {
        return;
    };
    let min = cost(best);
    places.retain(|&place| match criterion {
        Criterion::LateFrames => !is_more(late(&rows[place]), late(&rows[best])),
        Criterion::Lateness => {
            let than = lateness(&rows[best], q);
            !is_more(beyond(&rows[place], than), beyond(&rows[best], than))
        }
        Criterion::Cpu => cost(place) <= (min * SAME_CPU).max(min + SAME_SHARE),
    });
}

/// So many of so many.
type Part = (u64, u64);

fn late(row: &PaceVariant) -> Part {
    (row.late(), row.wanted())
}

/// The waits of a row that are longer than `than`.
fn beyond(row: &PaceVariant, than: Nanos) -> Part {
    wait(row).map_or((0, 0), |wait| (wait.beyond(than), wait.count))
}

fn lateness(row: &PaceVariant, q: Option<f64>) -> Nanos {
    let quantile = wait(row).and_then(|wait| wait.quantile(q?));
    quantile.unwrap_or(Nanos::ZERO)
}

fn share((part, whole): Part) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Whether one share is larger than another beyond what chance does: by more than two standard
/// deviations of the difference, one being added to the parts and the rests, so that none in a few
/// is not taken for certainty.
fn is_more(a: Part, b: Part) -> bool {
    let likely = |(part, whole): Part| (part as f64 + 1.0) / (whole as f64 + 2.0);
    let variance =
        |part: Part| likely(part) * (1.0 - likely(part)).max(0.0) / (part.1 as f64 + 2.0);
    share(a) - share(b) > 2.0 * (variance(a) + variance(b)).sqrt()
}

fn cpu_share(row: &PaceVariant) -> f64 {
    row.cpu_time.share_of(row.elapsed)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::{Criterion, Frame, PaceRule, PaceVariant, SleepMethod};

    use super::super::{FrameStats, Terms};
    use super::{choices, common_quantile};

    /// A loop of 50 frames a second for 20 s: every `late_every`th frame is 5 ms late, the others
    /// `wait_us`.
    fn row(sleep: SleepMethod, late_every: i64, wait_us: i64, cpu_ms: i64) -> PaceVariant {
        let mut book = FrameStats::new(Terms {
            period: Nanos::from_millis(20),
            overshot_from: Nanos::from_millis(4),
            asked_for: true,
        });
        for k in 0..1_000 {
            let due = Nanos::from_millis(20 * k);
            let is_late = late_every > 0 && k % late_every == 0;
            let wait = if is_late { 5_000 } else { wait_us };
            let began = due + Nanos::from_micros(wait);
            book.frame(Frame {
                due,
                began,
                ended: began + Nanos::from_millis(1),
                cpu: Nanos::from_millis(1),
            });
        }
        PaceVariant {
            readings: Vec::new(),
            margin: None,
            rate: 50.0,
            work: Nanos::from_millis(1),
            sleep,
            rule: PaceRule::Deadline,
            turns: 1,
            figures: book.close().figures(),
            cpu_time: Nanos::from_millis(cpu_ms),
            elapsed: Nanos::from_secs(20),
        }
    }

    #[test]
    fn late_frames_weigh_most_then_lateness_then_cpu() {
        let rows = [
            row(SleepMethod::Nanosleep, 20, 10, 1_000),
            row(SleepMethod::Poll, 0, 900, 1_000),
            row(SleepMethod::Timerfd, 0, 60, 1_005),
            row(SleepMethod::Hybrid, 0, 62, 3_000),
        ];
        let told = choices(&rows);
        assert_eq!(told.len(), 1);
        assert_eq!(
            (&told[0].best[..], told[0].by),
            (&[2][..], Some(Criterion::Cpu))
        );
        let told = choices(&rows[..3]);
        assert_eq!(
            (&told[0].best[..], told[0].by),
            (&[2][..], Some(Criterion::Lateness))
        );
        let told = choices(&[rows[0].clone(), row(SleepMethod::Select, 0, 10, 1_000)]);
        assert_eq!(
            (&told[0].best[..], told[0].by),
            (&[1][..], Some(Criterion::LateFrames))
        );
    }

    #[test]
    fn what_nothing_tells_apart_is_a_tie() {
        // Two late frames in a thousand against one are no difference.
        let rows = [
            row(SleepMethod::Nanosleep, 500, 60, 1_000),
            row(SleepMethod::Timerfd, 1_000, 61, 1_010),
        ];
        let told = choices(&rows);
        assert_eq!((&told[0].best[..], told[0].by), (&[0, 1][..], None));
    }

    #[test]
    fn too_few_frames_for_one_quantile_are_compared_by_another() {
        let long = row(SleepMethod::Nanosleep, 0, 60, 1_000);
        assert_eq!(common_quantile(std::slice::from_ref(&long)), Some(0.99));
        let mut short = long.clone();
        let wait = short.figures.as_mut().unwrap().wait.as_mut().unwrap();
        wait.quantiles.retain(|quantile| quantile.q < 0.95);
        assert_eq!(common_quantile(&[long, short]), Some(0.9));
    }

    #[test]
    fn each_rate_is_a_choice_of_its_own() {
        let mut rows = vec![row(SleepMethod::Nanosleep, 0, 60, 1_000); 2];
        rows[1].rate = 60.0;
        let told = choices(&rows);
        assert_eq!(
            told.iter()
                .map(|choice| &choice.best[..])
                .collect::<Vec<_>>(),
            [[0], [1]]
        );
        rows[1].figures = None;
        assert!(choices(&rows)[1].best.is_empty());
    }
}
