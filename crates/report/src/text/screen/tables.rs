//! The tables on a first screen. Narrow pages show fewer columns.

use ticktax_model::Nanos;

use super::groups::Group;
use crate::text::block::Columns;
use crate::text::group_names::with_group;
use crate::text::numbers::{counted, grouped, percent};
use crate::text::page::{Page, TIE, Tone, columns, elide};

/// Minimum page width for the column of counts.
const COUNTS: usize = 56;
/// Minimum share of CPU time at which a group keeps its line.
pub(super) const MUCH: f64 = 0.05;
/// Minimum share of a table's total for a group to count as large. Smaller groups are the first to
/// be merged into the line for the others.
pub(super) const LARGE: f64 = 0.1;
/// Minimum share of the total at which the time of unknown groups gets a line.
const UNSEEN: f64 = 0.005;
/// Heading of a column with shares of all CPU time.
pub(super) const CPUS: &str = "% CPU";
/// Heading of a column with shares of all waiting time.
pub(super) const WAIT: &str = "% wait";
/// Minimum page width for the last column, which contains text.
const WORDS: usize = 72;
/// Minimum page width for the number of threads.
pub(super) const ROOMY: usize = 100;
/// Width of the last column.
pub(super) const WORDS_WIDTH: usize = 13;
/// Width of the last column on wide pages.
const MORE_WORDS: usize = 22;
/// Width of the last column if it is next to the column of late frames.
const FEWER_WORDS: usize = 9;
/// Heading of the column with late and dropped frames.
const FRAMES: &str = "late+dropped";

/// A table with a line for each group.
pub(super) struct Table<'a> {
    pub(super) title: &'a str,
    /// Total for the shares. `None` if times are summed over threads, because such times have no
    /// meaningful total.
    pub(super) total: Option<Nanos>,
    /// Heading of the share column, which names the total.
    pub(super) share_heading: &'a str,
    /// Heading of the column of counts, which names the counted events.
    pub(super) count_heading: &'a str,
    /// Minimum share of the total at which a group keeps its line even if another group has a
    /// longer single interval.
    pub(super) keep_from: f64,
    /// Maximum number of groups that get a line just because they are [`LARGE`].
    pub(super) large: usize,
    /// Heading of the last column.
    pub(super) last_heading: &'a str,
    /// Returns the text for a group's last column.
    pub(super) last_cell: &'a dyn Fn(&Group) -> String,
    /// Selects groups to keep. The first group that it selects gets a line even in the smallest
    /// table.
    pub(super) must_show: &'a dyn Fn(&Group) -> bool,
    /// Sum of the groups that never get their own line, included in the line for the others.
    pub(super) rest: Rest,
    /// Time that belongs to no known group.
    pub(super) unseen: Nanos,
    /// Whether to show the numbers of late and dropped frames that each group caused.
    pub(super) has_frames: bool,
}

/// Sum of groups whose individual figures are unknown or not shown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    pub(super) groups: u64,
    pub(super) time: Nanos,
    pub(super) count: u64,
    /// Longest interval that is known.
    pub(super) max: Nanos,
    /// Upper bound on the intervals of groups about which nothing else is known. If it exceeds
    /// `max`, the longest interval is unknown.
    pub(super) unknown: Nanos,
}

impl Table<'_> {
    /// Writes the heading and normally at most `most` lines. The last line sums up the remaining
    /// groups. Large groups, and any group that must have a line, are written even beyond that
    /// limit.
    pub(super) fn write(&self, page: &mut Page, groups: &[Group], most: usize) {
        // The kernel's counters contain neither counts nor maxima.
        let has_counts = groups.iter().any(|group| group.count > 0);
        let has_max = groups.iter().any(|group| group.max > Nanos::ZERO);
        let shown = |is_shown, word| if is_shown { word } else { "" };
        let words = [
            "time",
            shown(self.total.is_some(), self.share_heading),
            shown(has_counts, self.count_heading),
            shown(has_max, "max"),
            shown(self.has_frames, FRAMES),
        ];
        let heading = self.cells(page, words, self.last_heading);
        page.headings(Tone::Strong, self.title, &heading);
        let (shown, others) = self.chosen(groups, most);
        for group in shown {
            let cells = self.group_cells(page, group, &(self.last_cell)(group));
            let title = group.title(page.width() >= ROOMY);
            let title = with_group(&title, group.service.as_deref(), page.room(2, &cells));
            page.named_row(Tone::Plain, 2, ("", &title), &cells);
        }
        self.others(page, &others);
        if self.share_is(|share| share >= UNSEEN, self.unseen) {
            let unseen = Group {
                time: self.unseen,
                ..Group::default()
            };
            let cells = self.group_cells(page, &unseen, "");
            page.row(Tone::Faint, 2, "unknown", &cells);
        }
    }

    /// Splits the groups into those with their own line and the rest. If the rest would be a single
    /// group, it gets its own line, too.
    fn chosen<'g>(&self, groups: &'g [Group], most: usize) -> (Vec<&'g Group>, Vec<&'g Group>) {
        let mut groups: Vec<&Group> = groups.iter().collect();
        let large = groups.iter().take(self.large);
        let large = large.take_while(|&group| self.is_large(group)).count();
        let most = most.max(large + 1);
        let rest = usize::from(self.rest.groups > 0);
        let mut shown = if groups.len() + rest <= most {
            groups.len()
        } else {
            most.saturating_sub(1).max(1)
        };
        // The group with the longest single interval deserves a line, even if it runs rarely. But
        // it must not replace a group that used much CPU time.
        let longest = (0..groups.len()).max_by_key(|&i| (groups[i].max, std::cmp::Reverse(i)));
        let much = |group: &Group| self.share_is(|share| share >= self.keep_from, group.time);
        if let Some(longest) =
            longest.filter(|&i| shown > 1 && i >= shown && !much(groups[shown - 1]))
        {
            groups[shown - 1..=longest].rotate_right(1);
        }
        let kept = groups.iter().position(|&group| (self.must_show)(group));
        if let Some(kept) = kept.filter(|&kept| kept >= shown) {
            // Replace the group on the last line or, if that group must stay, add a line.
            if shown == 1 || self.is_large(groups[shown - 1]) {
                shown += 1;
            }
            groups[shown - 1..=kept].rotate_right(1);
        }
        if groups.len() == shown + 1 && rest == 0 {
            shown += 1;
        }
        let others = groups.split_off(shown);
        (groups, others)
    }

    /// Writes a line that sums up the groups without their own line.
    fn others(&self, page: &mut Page, others: &[&Group]) {
        let rest = self.rest;
        let number = others.len() as u64 + rest.groups;
        if number == 0 {
            return;
        }
        let longest = others.iter().map(|group| group.max);
        let longest = longest.fold(rest.max, Nanos::max);
        let sum = Group {
            time: rest.time + others.iter().map(|group| group.time).sum::<Nanos>(),
            count: rest.count + others.iter().map(|group| group.count).sum::<u64>(),
            late: others.iter().map(|group| group.late).sum(),
            dropped: others.iter().map(|group| group.dropped).sum(),
            max: if longest < rest.unknown {
                Nanos::ZERO
            } else {
                longest
            },
            ..Group::default()
        };
        let cells = self.group_cells(page, &sum, "");
        let name = counted(number, "other").replace(TIE, " ");
        page.row(Tone::Faint, 2, &name, &cells);
    }

    fn is_large(&self, group: &Group) -> bool {
        self.share_is(|share| share >= LARGE, group.time)
    }

    /// Returns whether `condition` holds for the share that `time` has in the total, or `false` if
    /// the total is unknown.
    fn share_is(&self, condition: impl Fn(f64) -> bool, time: Nanos) -> bool {
        self.total
            .is_some_and(|total| condition(time.share_of(total)))
    }

    fn group_cells(&self, page: &Page, group: &Group, words: &str) -> Columns {
        let count = match group.count {
            0 => String::new(),
            count => grouped(count).replace(TIE, " "),
        };
        let max = match group.max {
            Nanos(..=0) => String::new(),
            max => max.to_string(),
        };
        let time = group.time.to_string();
        let share = self.total.map(|total| percent(group.time.share_of(total)));
        let share = share.unwrap_or_default();
        let frames = match (group.late, group.dropped) {
            (0, 0) => String::new(),
            (late, dropped) => late_and_dropped(late, dropped),
        };
        self.cells(page, [&time, &share, &count, &max, &frames], words)
    }

    fn cells(
        &self,
        page: &Page,
        [time, share, count, max, frames]: [&str; 5],
        words: &str,
    ) -> Columns {
        // The column of frames takes room from the other columns.
        let is_tight = self.has_frames && page.width() < ROOMY;
        let number = if is_tight { 8 } else { 9 };
        let mut cells = Columns::right([(number, time)]);
        if page.width() >= COUNTS || !self.has_frames {
            cells = cells.and_right(1, 7, share);
        }
        if page.width() >= COUNTS {
            cells = cells.and_right(1, number, count);
        }
        if page.width() >= COUNTS - 10 {
            cells = cells.and_right(1, number, max);
        }
        if self.has_frames {
            cells = cells.and_right(1, columns(FRAMES), frames);
        }
        if page.width() >= WORDS && !self.last_heading.is_empty() {
            let room = if page.width() >= ROOMY {
                MORE_WORDS
            } else if self.has_frames {
                FEWER_WORDS
            } else {
                WORDS_WIDTH
            };
            // Half of the second item would be useless, so keep only the first item.
            let first = words.split_once(", ").map_or(words, |(first, _)| first);
            let words = if columns(words) <= room { words } else { first };
            let words = elide(words, room);
            cells = cells.and_left(2, room, words);
        }
        cells
    }
}

/// Formats the numbers of late and dropped frames.
pub(super) fn late_and_dropped(late: u64, dropped: u64) -> String {
    format!("{}+{}", grouped(late), grouped(dropped)).replace(TIE, " ")
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{CPUS, Group, LARGE, MUCH, Rest, Table};
    use crate::text::TextStyle;
    use crate::text::page::Page;

    /// Returns a table that has lines for two groups and one for the others.
    fn shown(much: f64) -> String {
        table(much, 3, &|_| false)
    }

    /// Returns a table with at most `most` lines. `keeps` selects the groups that must have one.
    fn table(much: f64, most: usize, keeps: &dyn Fn(&Group) -> bool) -> String {
        with_rest(much, most, keeps, Rest::default())
    }

    /// Returns a table with at most `most` lines. `rest` is the sum of the groups that never get
    /// their own line.
    fn with_rest(much: f64, most: usize, keeps: &dyn Fn(&Group) -> bool, rest: Rest) -> String {
        let group = |name: &str, ms, max| Group {
            name: name.to_owned(),
            time: Nanos::from_millis(ms),
            count: 1,
            max: Nanos::from_millis(max),
            ..Group::default()
        };
        let groups = [
            group("loadtest", 13_600, 7),
            group("gamesrv", 5_900, 4),
            group("backupd", 360, 62),
            group("sshd", 2, 1),
        ];
        let table = Table {
            title: "TIME",
            total: Some(Nanos::from_secs(40)),
            share_heading: CPUS,
            count_heading: "runs",
            keep_from: much,
            last_heading: "",
            last_cell: &|_| String::new(),
            must_show: keeps,
            rest,
            large: 2,
            unseen: Nanos::ZERO,
            has_frames: false,
        };
        let mut page = Page::new(TextStyle::default());
        table.write(&mut page, &groups, most);
        page.finish().into()
    }

    #[test]
    fn a_kept_group_has_a_line_in_the_smallest_table() {
        let sshd: &dyn Fn(&Group) -> bool = &|group| group.name == "sshd";
        for most in [1, 2, 3] {
            let page = table(LARGE, most, sshd);
            // sshd does not replace a large group. Only backupd is then left over, so it gets a
            // line, too.
            assert!(
                page.contains("loadtest") && page.contains("gamesrv"),
                "{page}"
            );
            assert!(page.contains("sshd") && page.contains("backupd"), "{page}");
        }
        let first = table(LARGE, 2, &|group| group.name == "loadtest");
        assert!(
            first.contains("gamesrv") && first.contains("2 others"),
            "{first}"
        );
    }

    /// The shares refer to the sum 13.6 + 5.9 + 0.36 + 0.002 + 20.138 s = 40 s.
    #[test]
    fn unlisted_groups_count_among_the_others() {
        let page = |unknown| {
            let rest = Rest {
                groups: 30,
                time: Nanos::from_millis(20_138),
                count: 70,
                max: Nanos::from_millis(2),
                unknown: Nanos::from_millis(unknown),
            };
            with_rest(LARGE, 4, &|_| false, rest)
        };
        let last = |page: &str| {
            let line = page.lines().last().unwrap_or_default();
            line.split_whitespace().collect::<Vec<&str>>().join(" ")
        };
        // If nothing else were left over, all four groups would have a line.
        assert_eq!(last(&page(0)), "31 others 20.1 s 50.3 % 71 2.00 ms");
        assert_eq!(last(&page(5)), "31 others 20.1 s 50.3 % 71");
        let all = with_rest(LARGE, 5, &|_| false, Rest::default());
        assert!(all.contains("sshd") && !all.contains("other"), "{all}");
    }

    #[test]
    fn the_longest_interval_takes_no_line_from_a_group_with_much_cpu_time() {
        let page = shown(MUCH);
        assert!(
            page.contains("gamesrv") && !page.contains("backupd"),
            "{page}"
        );
    }

    #[test]
    fn the_longest_interval_takes_the_line_of_a_small_group() {
        let page = shown(0.2);
        assert!(
            page.contains("backupd") && !page.contains("gamesrv"),
            "{page}"
        );
        let page = shown(LARGE);
        assert!(
            page.contains("gamesrv") && !page.contains("backupd"),
            "{page}"
        );
    }

    #[test]
    fn a_single_remaining_group_is_shown_by_name() {
        let page = table(MUCH, 1, &|group| group.name == "backupd");
        assert!(page.contains("sshd") && !page.contains("other"), "{page}");
    }
}
