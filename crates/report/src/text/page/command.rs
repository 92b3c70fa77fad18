//! A command in the lines of a page: whoever copies all of them has it whole.

use super::{TIE, columns, elide};

/// A line of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Whether it goes on in the middle of a word, so that nothing may stand before it.
    pub(super) from_edge: bool,
    pub(super) text: String,
}

/// `command` in lines of `first` columns, and of `width` where one has to begin at the edge of the page.
///
/// Each that goes on ends with a backslash, and each of a comment begins with `#`. Nothing is left out of the
/// command itself; `None` where a word in quotes has no room on a line.
pub(super) fn lines(command: &str, first: usize, width: usize) -> Option<Vec<Line>> {
    let (code, comment) = parts(command);
    let mut lines = Lines {
        room: [first, width],
        done: Vec::new(),
        line: Line {
            from_edge: false,
            text: String::new(),
        },
        commented: false,
    };
    let words = words(code);
    for (i, word) in words.iter().enumerate() {
        lines.word(word, i + 1 < words.len())?;
    }
    for word in comment.split_whitespace() {
        lines.comment(word);
    }
    lines.end();
    Some(lines.done)
}

/// What a shell runs, and what it leaves aside, from `#` on.
fn parts(command: &str) -> (&str, &str) {
    let mut quoted = false;
    let mut before = ' ';
    for (at, c) in command.char_indices() {
        match c {
            '\'' => quoted = !quoted,
            '#' if !quoted && before == ' ' => {
                return (&command[..at], command[at..].trim_start_matches('#'));
            }
            _ => {}
        }
        before = c;
    }
    (command, "")
}

/// The words between which a line may end: not those in quotes, nor those that ties hold together.
fn words(code: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quoted) = (String::new(), false);
    for c in code.chars() {
        quoted ^= c == '\'';
        match c {
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            TIE => word.push(' '),
            _ => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Lines in the making.
struct Lines {
    /// Of a line behind a label, and of one at the edge.
    room: [usize; 2],
    done: Vec<Line>,
    line: Line,
    /// Whether the comment has begun on that line.
    commented: bool,
}

impl Lines {
    /// The columns of the line that is being written.
    fn room(&self) -> usize {
        self.room[usize::from(self.line.from_edge)]
    }

    /// Ends a line; the next begins at the edge or not.
    fn next(&mut self, from_edge: bool) {
        let next = Line {
            from_edge,
            text: String::new(),
        };
        self.done.push(std::mem::replace(&mut self.line, next));
        self.commented = false;
    }

    /// Adds a word of the command, after which another comes where there is `more`.
    fn word(&mut self, word: &str, more: bool) -> Option<()> {
        // A line that goes on ends with a space and a backslash.
        let mark = if more { 2 } else { 0 };
        let needed = columns(word) + mark;
        let used = columns(&self.line.text);
        if used > 0 && used + 1 + needed <= self.room() {
            self.line.text.push(' ');
            self.line.text.push_str(word);
            return Some(());
        }
        if used > 0 {
            self.line.text.push_str(" \\");
            self.next(false);
        }
        let mut rest = word;
        while columns(rest) + mark > self.room() {
            // In quotes a backslash is itself.
            if word.contains('\'') {
                return None;
            }
            let cut = fitting(rest, self.room().checked_sub(1)?);
            if cut == 0 {
                return None;
            }
            self.line.text.push_str(&rest[..cut]);
            self.line.text.push('\\');
            self.next(true);
            rest = &rest[cut..];
        }
        self.line.text.push_str(rest);
        Some(())
    }

    /// Adds a word of the comment.
    fn comment(&mut self, word: &str) {
        let mut used = columns(&self.line.text);
        let mut mark = if self.commented { " " } else { " # " };
        if used > 0 && used + mark.len() + columns(word) > self.room() {
            self.next(false);
            used = 0;
        }
        if used == 0 {
            mark = "# ";
        }
        self.commented = true;
        let word = elide(word, self.room().saturating_sub(mark.len()));
        self.line.text.push_str(mark);
        self.line.text.push_str(&word);
    }

    fn end(&mut self) {
        if !self.line.text.is_empty() {
            self.next(false);
        }
    }
}

/// How much of `text`, in bytes, has room in so many columns.
fn fitting(text: &str, room: usize) -> usize {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += columns(c.encode_utf8(&mut [0; 4]));
        if used > room {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::{TIE, columns, lines};

    /// What a shell makes of a command that was copied from a page: what a backslash continues is one line.
    fn pasted(text: &str, first: usize, width: usize) -> String {
        let lines = lines(text, first, width).unwrap();
        let mut command = String::new();
        for line in &lines {
            let room = if line.from_edge { width } else { first };
            assert!(columns(&line.text) <= room, "{lines:#?}");
            command.push_str(if line.from_edge { "" } else { "       " });
            command.push_str(&line.text);
            command.push('\n');
        }
        let whole = command.replace("\\\n", "");
        let code = whole.lines().map(|line| line.split('#').next().unwrap());
        let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
        words.join(" ")
    }

    #[test]
    fn a_command_that_takes_several_lines_is_still_one() {
        let command = "ticktax pace --rate 35 --work 3ms --cpu 1 --policy fifo:10 --overshot-from 4ms \
                       --vary sleep=nanosleep,timerfd,hybrid";
        let tied = command.replace("--cpu 1", &format!("--cpu{TIE}1"));
        for first in 31..110 {
            assert_eq!(pasted(&tied, first, first + 9), command, "{first}");
        }
        let two = lines("abc def", 5, 9).unwrap();
        assert_eq!(two[0].text, "abc \\");
    }

    #[test]
    fn a_word_is_broken_only_where_a_shell_puts_it_together_again() {
        let path = format!("grep . /sys/fs/cgroup/{}/cpu.*", "kubepods".repeat(20));
        for first in 31..200 {
            assert_eq!(pasted(&path, first, first + 9), path);
        }
        let quoted = format!("ticktax audit -- '{}'", "a b ".repeat(20));
        assert_eq!(lines(&quoted, 31, 40), None);
        assert_eq!(pasted("sh -c 'a  b'", 31, 40), "sh -c 'a b'");
    }

    #[test]
    fn a_comment_stays_one() {
        let command =
            "sysctl kernel.sched_rt_runtime_us=-1   # a loop that never sleeps stops its CPU";
        for first in 31..100 {
            assert_eq!(
                pasted(command, first, first + 9),
                "sysctl kernel.sched_rt_runtime_us=-1"
            );
        }
        assert_eq!(pasted("# mount it again, it's not as it was", 31, 40), "");
        assert_eq!(
            lines("vmstat 1 10   # column st", 71, 80).unwrap()[0].text,
            "vmstat 1 10 # column st"
        );
    }
}
