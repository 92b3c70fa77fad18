//! Which of several ways to pace a loop to choose.

use ticktax_model::Nanos;
use ticktax_model::pace::{Choice, Criterion, SweepRow};

/// Times are known to a quarter of an octave, so waits that differ by less are alike.
const SAME_WAIT: f64 = 1.25;
/// CPU times that differ by less than a tenth, or by a thousandth of a CPU, are alike.
const SAME_CPU: f64 = 1.1;
const SAME_SHARE: f64 = 1e-3;

/// The choice for each rate and work among `rows`.
///
/// The criteria are asked one after the other, and each keeps those that are not worse than its
/// best: fewest slots without a frame in time, the shortest wait that 99 of 100 frames stay below,
/// the least CPU time. What the last leaves are as good as each other. A row without a frame is no
/// choice; a group without any has none.
pub fn choices(rows: &[SweepRow]) -> Vec<Choice> {
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
            let row: &SweepRow = &rows[place];
            is_same(choice.rate, row.rate) && choice.work == row.work && row.figures.is_some()
        };
        choice.best = (0..rows.len()).filter(mine).collect();
        for criterion in [Criterion::LateFrames, Criterion::Lateness, Criterion::Cpu] {
            let before = choice.best.len();
            keep_best(&mut choice.best, rows, criterion);
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

/// Leaves those that are as good as the best.
fn keep_best(places: &mut Vec<usize>, rows: &[SweepRow], criterion: Criterion) {
    let cost = |place: usize| match criterion {
        Criterion::LateFrames => late_share(&rows[place]),
        Criterion::Lateness => lateness(&rows[place]),
        Criterion::Cpu => cpu_share(&rows[place]),
    };
    let Some(&best) = places.iter().min_by(|&&a, &&b| cost(a).total_cmp(&cost(b))) else {
        return;
    };
    let least = cost(best);
    places.retain(|&place| match criterion {
        Criterion::LateFrames => !is_later(&rows[place], &rows[best]),
        Criterion::Lateness => cost(place) <= least * SAME_WAIT,
        Criterion::Cpu => cost(place) <= (least * SAME_CPU).max(least + SAME_SHARE),
    });
}

fn late_share(row: &SweepRow) -> f64 {
    row.late() as f64 / row.wanted().max(1) as f64
}

/// Whether `row` has more late slots than `best` beyond what chance does: the difference of the
/// shares is more than two of its standard deviations, with one late slot added on each side, so
/// that none in a few is not taken for certainty.
fn is_later(row: &SweepRow, best: &SweepRow) -> bool {
    let share = |row: &SweepRow| (row.late() as f64 + 1.0) / (row.wanted() as f64 + 2.0);
    let variance =
        |row: &SweepRow| share(row) * (1.0 - share(row)).max(0.0) / (row.wanted() as f64 + 2.0);
    let difference = late_share(row) - late_share(best);
    difference > 2.0 * (variance(row) + variance(best)).sqrt()
}

/// The wait that 99 of 100 frames stay below; the longest, where they are too few to tell.
fn lateness(row: &SweepRow) -> f64 {
    let wait = row
        .figures
        .as_ref()
        .and_then(|figures| figures.wait.as_ref());
    let time = wait.map(|wait| wait.quantile(0.99).unwrap_or(wait.most));
    time.unwrap_or(Nanos::MAX).0 as f64
}

fn cpu_share(row: &SweepRow) -> f64 {
    row.cpu_time.share_of(row.elapsed)
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;
    use ticktax_model::pace::{Criterion, Frame, PaceRule, SleepMethod, SweepRow};

    use super::super::{FrameBook, Terms};
    use super::choices;

    /// A loop of 50 frames a second for 20 s: every `late_every`th frame is 5 ms late, the others
    /// `wait_us`.
    fn row(sleep: SleepMethod, late_every: i64, wait_us: i64, cpu_ms: i64) -> SweepRow {
        let mut book = FrameBook::new(Terms {
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
        SweepRow {
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
