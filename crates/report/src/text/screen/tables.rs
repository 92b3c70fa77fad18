//! The tables of a first screen: fewer columns where there is less room.

use ticktax_model::Nanos;

use super::groups::Group;
use crate::text::block::Columns;
use crate::text::numbers::{counted, grouped, percent};
use crate::text::page::{Page, TIE, Tone, columns, elide};

/// From this width on a table says how often.
const TIMES: usize = 56;
/// A group with this share of the CPUs' time keeps its line.
pub(super) const MUCH: f64 = 0.05;
/// A group with this share of what a table is about is not among the others while a smaller one has a line.
pub(super) const LARGE: f64 = 0.1;
/// A table that does not add up by less than this has no line for it.
const UNSEEN: f64 = 0.005;
/// The headings of shares: of the time of all CPUs,
pub(super) const CPUS: &str = "% CPUs";
/// and of what was waited.
pub(super) const WAIT: &str = "% wait";
/// From this width on it has a column of words.
const WORDS: usize = 72;
/// From this width on it counts threads.
pub(super) const ROOMY: usize = 100;
/// The width of that column.
pub(super) const WORDS_WIDTH: usize = 13;
/// And where there is room.
const MORE_WORDS: usize = 22;

/// A table of groups.
pub(super) struct Table<'a> {
    pub(super) title: &'a str,
    /// What shares are of; `None` where times are added up over threads, and are a share of nothing.
    pub(super) whole: Option<Nanos>,
    /// That in words, the heading of the shares.
    pub(super) of: &'a str,
    /// The share of it from which on a group keeps its line, no matter how long others had a CPU at once.
    pub(super) much: f64,
    /// How many groups have a line because they are [`LARGE`], at most.
    pub(super) large: usize,
    /// The heading of the last column.
    pub(super) words: &'a str,
    /// What stands in it.
    pub(super) word: &'a dyn Fn(&Group) -> String,
    /// Whether a group has a line however little room there is; the costliest of them has.
    pub(super) keeps: &'a dyn Fn(&Group) -> bool,
    /// What has no line of its own whatever room there is: it is among the others.
    pub(super) rest: Rest,
    /// What belongs to nobody that was seen.
    pub(super) unseen: Nanos,
}

/// What a table sums up without having its groups.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest {
    /// How many groups.
    pub(super) groups: u64,
    pub(super) time: Nanos,
    pub(super) count: u64,
    /// The longest that is known.
    pub(super) max: Nanos,
    /// What is not known to be shorter than this may be longer than that.
    pub(super) unknown: Nanos,
}

impl Table<'_> {
    /// Writes the heading and at most `most` lines, of which the last sums up what is left; more where that would
    /// leave out what has a line in any case.
    pub(super) fn write(&self, page: &mut Page, groups: &[Group], most: usize) {
        // Counters tell neither.
        let times = groups.iter().any(|group| group.count > 0);
        let longest = groups.iter().any(|group| group.max > Nanos::ZERO);
        let told = |told, word| if told { word } else { "" };
        let words = [
            "time",
            told(self.whole.is_some(), self.of),
            told(times, "times"),
            told(longest, "longest"),
        ];
        let heading = self.cells(page, words, self.words);
        page.headings(Tone::Strong, self.title, &heading);
        let (shown, others) = self.chosen(groups, most);
        for group in shown {
            let cells = self.of(page, group, &(self.word)(group));
            let title = group.title(page.width() >= ROOMY);
            page.named_row(Tone::Plain, 2, ("", &title), &cells);
        }
        self.others(page, &others);
        if self.is(|share| share >= UNSEEN, self.unseen) {
            let unseen = Group {
                time: self.unseen,
                ..Group::default()
            };
            let cells = self.of(page, &unseen, "");
            page.row(Tone::Faint, 2, "not seen", &cells);
        }
    }

    /// Which groups have a line, and which have not; a line that would sum up one group is that group's.
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
        // The longest time on a CPU is worth a line, however rare it was, but not that of what had much.
        let longest = (0..groups.len()).max_by_key(|&i| (groups[i].max, std::cmp::Reverse(i)));
        let much = |group: &Group| self.is(|share| share >= self.much, group.time);
        if let Some(longest) =
            longest.filter(|&i| shown > 1 && i >= shown && !much(groups[shown - 1]))
        {
            groups[shown - 1..=longest].rotate_right(1);
        }
        let kept = groups.iter().position(|&group| (self.keeps)(group));
        if let Some(kept) = kept.filter(|&kept| kept >= shown) {
            // It takes the last line, or one more.
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

    /// The line that sums up those without one.
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
            max: if longest < rest.unknown {
                Nanos::ZERO
            } else {
                longest
            },
            ..Group::default()
        };
        let cells = self.of(page, &sum, "");
        let name = counted(number, "other").replace(TIE, " ");
        page.row(Tone::Faint, 2, &name, &cells);
    }

    fn is_large(&self, group: &Group) -> bool {
        self.is(|share| share >= LARGE, group.time)
    }

    /// Whether the share that a time is of all is such; of nothing it is none.
    fn is(&self, such: impl Fn(f64) -> bool, time: Nanos) -> bool {
        self.whole.is_some_and(|whole| such(time.share_of(whole)))
    }

    fn of(&self, page: &Page, group: &Group, word: &str) -> Columns {
        let count = match group.count {
            0 => String::new(),
            count => grouped(count).replace(TIE, " "),
        };
        let max = match group.max {
            Nanos(..=0) => String::new(),
            max => max.to_string(),
        };
        let time = group.time.to_string();
        let share = self.whole.map(|whole| percent(group.time.share_of(whole)));
        let share = share.unwrap_or_default();
        self.cells(page, [&time, &share, &count, &max], word)
    }

    fn cells(&self, page: &Page, [time, share, count, max]: [&str; 4], word: &str) -> Columns {
        let mut cells = Columns::right([(9, time), (7, share)]);
        if page.width() >= TIMES {
            cells = cells.and_right(1, 9, count);
        }
        if page.width() >= TIMES - 10 {
            cells = cells.and_right(1, 9, max);
        }
        if page.width() >= WORDS && !self.words.is_empty() {
            let room = if page.width() >= ROOMY {
                MORE_WORDS
            } else {
                WORDS_WIDTH
            };
            // What comes first says most; half of the rest says nothing.
            let first = word.split_once(", ").map_or(word, |(first, _)| first);
            let word = if columns(word) <= room { word } else { first };
            let word = elide(word, room);
            cells = cells.and_left(2, room, word);
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::Nanos;

    use super::{CPUS, Group, LARGE, MUCH, Rest, Table};
    use crate::text::TextStyle;
    use crate::text::page::Page;

    /// The names in a table with room for two groups and a line for the others.
    fn shown(much: f64) -> String {
        table(much, 3, &|_| false)
    }

    /// The same with room for so many lines, and groups that are kept.
    fn table(much: f64, most: usize, keeps: &dyn Fn(&Group) -> bool) -> String {
        with_rest(much, most, keeps, Rest::default())
    }

    /// The same with what has no line in any case.
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
            whole: Some(Nanos::from_secs(40)),
            of: CPUS,
            much,
            words: "",
            word: &|_| String::new(),
            keeps,
            rest,
            large: 2,
            unseen: Nanos::ZERO,
        };
        let mut page = Page::new(TextStyle::default());
        table.write(&mut page, &groups, most);
        page.finish().into()
    }

    #[test]
    fn what_is_kept_has_a_line_in_the_smallest_table() {
        let sshd: &dyn Fn(&Group) -> bool = &|group| group.name == "sshd";
        for most in [1, 2, 3] {
            let page = table(LARGE, most, sshd);
            // It takes no line from what is large, and then only one group is left.
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

    /// Shares add up: 13.6 + 5.9 + 0.36 + 0.002 + 20.138 s are all of the 40 s.
    #[test]
    fn what_has_no_line_in_any_case_is_among_the_others() {
        let told = |unknown| {
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
        // Four groups had room before.
        assert_eq!(last(&told(0)), "31 others 20.1 s 50.3 % 71 2.00 ms");
        assert_eq!(last(&told(5)), "31 others 20.1 s 50.3 % 71");
        let all = with_rest(LARGE, 5, &|_| false, Rest::default());
        assert!(all.contains("sshd") && !all.contains("other"), "{all}");
    }

    #[test]
    fn the_longest_takes_no_line_from_what_had_much_of_the_cpus() {
        let page = shown(MUCH);
        assert!(
            page.contains("gamesrv") && !page.contains("backupd"),
            "{page}"
        );
    }

    #[test]
    fn the_longest_that_others_wait_for_has_the_line_of_what_is_not_large() {
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
    fn one_group_that_is_left_has_its_name() {
        let page = table(MUCH, 1, &|group| group.name == "backupd");
        assert!(page.contains("sshd") && !page.contains("other"), "{page}");
    }
}
