//! `cargo xtask prose`: limits the amount of prose that does not read like plain technical English.
//!
//! Counts the comment blocks, document sentences and messages that contain one of the [`PHRASES`]
//! or start with one of the [`OPENINGS`]. `xtask/prose.txt` contains a maximum for each directory
//! and each kind of prose, which may only be lowered. The count is a thermometer: prose can pass it
//! and still be bad.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::root;

/// File that contains the maximum counts.
const CEILINGS: &str = "xtask/prose.txt";

/// Phrases that a native engineer would not write in technical prose, each with a better
/// alternative.
const PHRASES: [(&str, &str); 40] = [
    ("is told", "is reported, is known"),
    ("are told", "are reported, are known"),
    ("was told", "was reported"),
    ("were told", "were reported"),
    ("told apart", "distinguished"),
    ("told of", "reported for"),
    ("told by", "reported by, known from"),
    ("tells of", "reports"),
    ("tells apart", "distinguishes"),
    ("is said", "is reported, is stated"),
    ("are said", "are reported, are stated"),
    ("says so", "reports it"),
    ("say so", "report it"),
    ("whoever", "name the thing"),
    ("whatever", "name the thing"),
    ("whichever", "name the thing"),
    ("is of no", "does not"),
    ("but for", "except"),
    ("for ever", "forever, without end"),
    ("by turns", "interleaved"),
    ("in place of", "instead of"),
    ("the begin", "the start"),
    ("its begin", "its start"),
    ("had the cpu", "ran"),
    ("has the cpu", "runs"),
    ("have the cpu", "run"),
    ("had its cpu", "ran"),
    ("of its own", "separate, or cut"),
    ("of their own", "separate, or cut"),
    ("of which", "split the sentence"),
    ("of whom", "split the sentence"),
    ("beside", "next to, compared with"),
    ("handed out", "emitted, returned"),
    ("hands out", "emits, returns"),
    ("hand out", "emit, return"),
    ("became of", "happened to, the outcome of"),
    ("becomes of", "happens to"),
    ("came of", "resulted from"),
    ("meanwhile", "during that time, or cut"),
    ("oftener", "more often"),
];

/// Words that should not open a sentence, because its subject should come first.
const OPENINGS: [&str; 11] = [
    "of",
    "those",
    "who",
    "whom",
    "nor",
    "so is",
    "so are",
    "how long",
    "how many",
    "how often",
    "what",
];

/// A kind of prose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Comment,
    Document,
    Message,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Comment, Self::Document, Self::Message];

    const fn name(self) -> &'static str {
        match self {
            Self::Comment => "comments",
            Self::Document => "sentences",
            Self::Message => "messages",
        }
    }
}

/// A piece of prose, and the line on which it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    kind: Kind,
    line: usize,
    text: String,
}

/// Number of pieces of one kind in a directory: the marked ones, and all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    marked: u64,
    all: u64,
}

type Counts = BTreeMap<(String, Kind), Count>;

/// Fails if a count exceeds its maximum.
pub(crate) fn check() -> Result<String, String> {
    let counts = count(&mut |_, _, _| ())?;
    let ceilings = ceilings(&committed()?)?;
    let mut over = String::new();
    for (key, count) in &counts {
        let ceiling = ceilings.get(key).copied().unwrap_or(0);
        if count.marked > ceiling {
            let (folder, kind) = key;
            let _ = write!(
                over,
                "\n  {folder}: {} marked {}, at most {ceiling}",
                count.marked,
                kind.name()
            );
        }
    }
    if over.is_empty() {
        return Ok(table(&counts));
    }
    Err(format!(
        "prose is above its ceiling:{over}\n`cargo xtask prose --list FOLDER` shows each place"
    ))
}

/// Lowers each maximum to the current count, and sets one for any directory that has none.
pub(crate) fn lower() -> Result<String, String> {
    let before = if root().join(CEILINGS).exists() {
        ceilings(&committed()?)?
    } else {
        BTreeMap::new()
    };
    let mut text = String::from(
        "# Limits of marked prose by folder. `cargo xtask prose --lower` lowers them.\n",
    );
    for (key, count) in count(&mut |_, _, _| ())? {
        let ceiling = before
            .get(&key)
            .map_or(count.marked, |&before| before.min(count.marked));
        let (folder, kind) = key;
        let _ = writeln!(text, "{folder} {} {ceiling}", kind.name());
    }
    super::renew(CEILINGS, text.as_bytes())
}

/// Lists every marked piece of prose in and below a directory.
pub(crate) fn list(folder: &str) -> Result<String, String> {
    let mut listed = String::new();
    count(&mut |path, block, mark| {
        if path.starts_with(folder) {
            let _ = writeln!(listed, "{path}:{}: {}\n    {mark}", block.line, block.text);
        }
    })?;
    Ok(listed)
}

fn committed() -> Result<String, String> {
    let text = super::read(CEILINGS)?;
    String::from_utf8(text).map_err(|_| format!("{CEILINGS} is not UTF-8"))
}

fn ceilings(text: &str) -> Result<BTreeMap<(String, Kind), u64>, String> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.starts_with('#') && !line.is_empty());
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let folder = words.next()?.to_owned();
        let kind = words.next()?;
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
        Some(((folder, kind), words.next()?.parse().ok()?))
    };
    lines
        .map(|(at, line)| {
            let error = || format!("{CEILINGS}:{}: not `FOLDER KIND NUMBER`", at + 1);
            parse(line).ok_or_else(error)
        })
        .collect()
}

fn table(counts: &Counts) -> String {
    let mut text = String::new();
    for kind in Kind::ALL {
        let of_kind = counts.iter().filter(|((_, of), _)| *of == kind);
        let sum = of_kind.fold(Count::default(), |sum, (_, count)| Count {
            marked: sum.marked + count.marked,
            all: sum.all + count.all,
        });
        let share = 100.0 * sum.marked as f64 / sum.all.max(1) as f64;
        let _ = writeln!(
            text,
            "{:10} {:6} of {:6} marked, {share:.1} %",
            kind.name(),
            sum.marked,
            sum.all
        );
    }
    text.trim_end().to_owned()
}

/// Counts the prose of all files tracked by git, and passes each marked piece to `each`.
fn count(each: &mut dyn FnMut(&str, &Block, &str)) -> Result<Counts, String> {
    let git = Command::new("git")
        .args(["ls-files"])
        .current_dir(root())
        .output();
    let git = git.map_err(|error| format!("cannot run git: {error}"))?;
    let files = String::from_utf8_lossy(&git.stdout);
    let mut counts = Counts::new();
    for path in files.lines().filter(|path| !path.contains("/fixtures/")) {
        // Skip this file, because it contains the list of phrases.
        if path == "xtask/src/prose.rs" {
            continue;
        }
        let Ok(text) = fs::read_to_string(root().join(path)) else {
            continue;
        };
        for block in blocks(path, &text) {
            let count = counts.entry((folder(path), block.kind)).or_default();
            count.all += 1;
            if let Some(mark) = mark(&block.text) {
                count.marked += 1;
                each(path, &block, &mark);
            }
        }
    }
    Ok(counts)
}

/// Returns the directory that this file counts towards: a crate, or the root.
fn folder(path: &str) -> String {
    let mut parts = path.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("crates"), Some(name), Some(_)) => format!("crates/{name}"),
        (Some(top), Some(_), _) => top.to_owned(),
        _ => ".".to_owned(),
    }
}

fn blocks(path: &str, text: &str) -> Vec<Block> {
    match Path::new(path)
        .extension()
        .and_then(|extension| extension.to_str())
    {
        Some("rs" | "c" | "h" | "ts") => of_source(text),
        Some("md") => of_document(text),
        _ => Vec::new(),
    }
}

/// Splits source into comments and quoted texts. A comment includes its continuation lines. Leaves
/// out texts of fewer than five words.
fn of_source(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut comment: Option<Block> = None;
    for (line, content) in text.lines().chain([""]).enumerate() {
        let content = content.trim();
        let words = content
            .strip_prefix("//")
            .or_else(|| content.strip_prefix("/*"));
        let words = words.or_else(|| content.strip_prefix('*').filter(|_| comment.is_some()));
        if let Some(words) = words {
            let words = words
                .trim_start_matches(['/', '!', '*'])
                .trim_end_matches("*/")
                .trim();
            let block = comment.get_or_insert_with(|| Block {
                kind: Kind::Comment,
                line: line + 1,
                text: String::new(),
            });
            block.text.push(' ');
            block.text.push_str(words);
            continue;
        }
        blocks.extend(
            comment
                .take()
                .filter(|block| block.text.split_whitespace().count() > 2),
        );
        let messages = quoted(content).into_iter();
        let messages = messages.filter(|message| message.split_whitespace().count() > 4);
        blocks.extend(messages.map(|text| Block {
            kind: Kind::Message,
            line: line + 1,
            text,
        }));
    }
    blocks
}

/// Returns the texts between quotation marks in a line of source.
fn quoted(line: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut open: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (&mut open, character) {
            (Some(text), '\\') => text.extend(characters.next()),
            (Some(_), '"') => texts.extend(open.take()),
            (Some(text), other) => text.push(other),
            (None, '"') => open = Some(String::new()),
            (None, _) => {}
        }
    }
    texts
}

/// Splits a document into sentences of more than four words. Leaves out code and indented blocks.
fn of_document(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let (mut paragraph, mut begin, mut is_code) = (String::new(), 1, false);
    for (line, content) in text.lines().chain([""]).enumerate() {
        if content.trim_start().starts_with("```") {
            is_code = !is_code;
            continue;
        }
        if is_code || content.starts_with("    ") {
            continue;
        }
        let trimmed = content.trim_start();
        if trimmed.is_empty() || trimmed.starts_with(['-', '|', '#', '*']) {
            blocks.extend(sentences(&paragraph, begin));
            paragraph.clear();
            begin = line + 1;
        }
        paragraph.push(' ');
        paragraph.push_str(trimmed.trim_start_matches(['-', '|', '#', '*', ' ']));
    }
    blocks
}

fn sentences(paragraph: &str, line: usize) -> Vec<Block> {
    let parts = paragraph
        .split_inclusive(['.', '!', '?', ';', '|'])
        .map(str::trim);
    let parts = parts.filter(|part| part.split_whitespace().count() > 4);
    let block = |part: &str| Block {
        kind: Kind::Document,
        line,
        text: part.to_owned(),
    };
    parts.map(block).collect()
}

/// Returns the first marked phrase in a piece of prose together with a better wording.
fn mark(text: &str) -> Option<String> {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| {
            // Code is not prose: `None` is not the word "none".
            if word.contains('`') {
                return String::new();
            }
            word.trim_matches(|c: char| !c.is_alphanumeric())
                .to_lowercase()
        })
        .collect();
    let holds = |phrase: &str| {
        let phrase: Vec<&str> = phrase.split(' ').collect();
        words
            .windows(phrase.len())
            .any(|window| window == phrase.as_slice())
    };
    if let Some((phrase, instead)) = PHRASES.iter().find(|(phrase, _)| holds(phrase)) {
        return Some(format!("\"{phrase}\": {instead}"));
    }
    let opening = text
        .split_inclusive(['.', '!', '?', ';'])
        .find_map(|sentence| {
            let sentence = sentence.trim();
            let is_question = sentence.ends_with('?');
            let starts = |opening: &&&str| {
                let rest = sentence.get(..opening.len()).filter(|start| {
                    start.eq_ignore_ascii_case(opening) && start.starts_with(char::is_uppercase)
                });
                rest.is_some() && sentence[opening.len()..].starts_with(' ')
            };
            OPENINGS.iter().find(starts).filter(|_| !is_question)
        })?;
    Some(format!("opens with \"{opening}\": start with the subject"))
}

#[cfg(test)]
mod tests {
    use super::{Kind, blocks, ceilings, folder, mark};

    #[test]
    fn odd_prose_is_marked_and_plain_prose_is_not() {
        for odd in [
            "Waits that cross the end are told as well.",
            "Runs the command. Of each, the longest is kept.",
            "What was typed for a verb",
            "Prints the time beside the count.",
        ] {
            assert!(mark(odd).is_some(), "{odd}");
        }
        for plain in [
            "Waits that cross either end of the recording are not reported.",
            "What would HZ=1000 change?",
            "Besides, an offset of 4 KiB is allowed.",
            "The result is `None` if nothing was recorded.",
        ] {
            assert_eq!(mark(plain), None, "{plain}");
        }
    }

    #[test]
    fn comments_messages_and_sentences_are_found_with_their_lines() {
        let source = "//! One comment\n//! of two lines.\n\
            fn a() { fail(\"cannot read \\\"it\\\" or write it\") }\n// ab\n";
        let found = blocks("crates/a/src/b.rs", source);
        let found: Vec<(Kind, usize, &str)> = found
            .iter()
            .map(|block| (block.kind, block.line, block.text.trim()))
            .collect();
        let expected = [
            (Kind::Comment, 1, "One comment of two lines."),
            (Kind::Message, 3, "cannot read \"it\" or write it"),
        ];
        assert_eq!(found, expected);
        let document = "# Short\n\nA sentence of six words counts. Short one.\n\n\
            ```\nCode that is left out here.\n```\n";
        let found = blocks("docs/a.md", document);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].text, "A sentence of six words counts.");
    }

    #[test]
    fn ceilings_are_read_by_folder_and_kind() {
        let read = ceilings("# about\ncrates/a comments 12\n. sentences 3\n").unwrap();
        assert_eq!(read[&("crates/a".to_owned(), Kind::Comment)], 12);
        assert!(ceilings("crates/a comments\n").is_err());
        assert_eq!(folder("crates/a/src/b.rs"), "crates/a");
        assert_eq!(folder("docs/a.md"), "docs");
        assert_eq!(folder("README.md"), ".");
    }
}
