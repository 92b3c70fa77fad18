//! Breaks a command into lines that fit on a page. Pasted together into a shell, the lines are
//! still one command.

use super::{TIE, columns, elide};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// Whether the line continues a word and must therefore start at the page's edge.
    pub(super) from_edge: bool,
    pub(super) text: String,
}

/// Breaks `command` into lines. Indented lines have at most `first` columns, and lines that start
/// at the page's edge have at most `width`.
///
/// A line ends with a backslash if the command continues on the next line, and comment lines start
/// with `#`. The command itself is never cut. Returns `None` if a quoted word does not fit on a
/// line.
pub(super) fn lines(command: &str, first: usize, width: usize) -> Option<Vec<CommandLine>> {
    let (code, comment) = parts(command);
    let mut lines = Lines {
        room: [first, width],
        done: Vec::new(),
        line: CommandLine {
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

/// Splits a command into the part that a shell runs and the comment that follows `#`.
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

/// Splits code into words. Lines can break only between them, so quoted words and words joined by
/// [`TIE`] stay together.
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

/// Lines under construction.
struct Lines {
    /// Number of columns available after the label, and at the page's edge.
    room: [usize; 2],
    done: Vec<CommandLine>,
    line: CommandLine,
    /// Whether the current line already contains a comment.
    commented: bool,
}

impl Lines {
    /// Returns the number of columns available to the current line.
    fn room(&self) -> usize {
        self.room[usize::from(self.line.from_edge)]
    }

    /// Ends the current line. `from_edge` says whether the next line starts at the page's edge.
    fn next(&mut self, from_edge: bool) {
        let next = CommandLine {
            from_edge,
            text: String::new(),
        };
        self.done.push(std::mem::replace(&mut self.line, next));
        self.commented = false;
    }

    /// Adds a word of the command. `more` is `true` if another word follows. Returns `None` if the
    /// word does not fit.
    fn word(&mut self, word: &str, more: bool) -> Option<()> {
        // If the command continues, a space and a backslash follow the word.
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
            // Within single quotes, a shell does not read a backslash at the end of a line as a
            // continuation.
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

/// Returns how many bytes at the start of `text` fit into `room` columns.
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

    /// Returns the command that a shell reads when the lines are pasted from a page. A line that
    /// ends with a backslash is joined with the next line.
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
        let joined = command.replace("\\\n", "");
        let code = joined.lines().map(|line| line.split('#').next().unwrap());
        let words: Vec<&str> = code.flat_map(str::split_whitespace).collect();
        words.join(" ")
    }

    #[test]
    fn a_command_over_several_lines_is_still_one_command() {
        let command = "ticktax pace --rate 35 --work 3ms --cpu 1 --policy fifo:10 --overshot-from 4ms \
                       --vary sleep=nanosleep,timerfd,hybrid";
        let tied = command.replace("--cpu 1", &format!("--cpu{TIE}1"));
        for first in 31..110 {
            assert_eq!(pasted(&tied, first, first + 9), command, "{first}");
        }
        let lines_of_two = lines("abc def", 5, 9).unwrap();
        assert_eq!(lines_of_two[0].text, "abc \\");
    }

    #[test]
    fn a_word_is_broken_only_where_a_shell_rejoins_it() {
        let path = format!("grep . /sys/fs/cgroup/{}/cpu.*", "kubepods".repeat(20));
        for first in 31..200 {
            assert_eq!(pasted(&path, first, first + 9), path);
        }
        let quoted = format!("ticktax audit -- '{}'", "a b ".repeat(20));
        assert_eq!(lines(&quoted, 31, 40), None);
        assert_eq!(pasted("sh -c 'a  b'", 31, 40), "sh -c 'a b'");
    }

    #[test]
    fn a_comment_over_several_lines_stays_a_comment() {
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
