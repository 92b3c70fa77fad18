//! Shortens text that is too wide for its place.

use super::{columns, width_of};

/// Shortens `text` to `room` columns by replacing its middle with `…`. The ends are kept, because
/// the names of threads and functions often differ only there. The cut is between words if
/// possible, otherwise between the parts of a name, as in `tick_nohz_…`, and within a word only as
/// a last resort.
pub(crate) fn elide(text: &str, room: usize) -> String {
    if columns(text) <= room {
        return text.to_owned();
    }
    let words: Vec<&str> = text.split_inclusive(' ').collect();
    let parts: Vec<&str> = text
        .split_inclusive(|c: char| !c.is_alphanumeric())
        .collect();
    let at_boundary = joined(&words, " ", room).or_else(|| joined(&parts, "", room));
    at_boundary.unwrap_or_else(|| cut(text, room))
}

/// Joins as many pieces from the start and the end of a text as fit into `room` columns, with `…`
/// and `space` between them. Prefers pieces from the start. Returns `None` if that would use less
/// than half of the room.
fn joined(pieces: &[&str], space: &str, room: usize) -> Option<String> {
    let heads = trimmed_columns(pieces.iter().copied(), str::trim_end);
    let tails = trimmed_columns(pieces.iter().rev().copied(), str::trim_start);
    let all = pieces.len();
    let gap = |shown: usize| if shown == 0 { 0 } else { columns(space) };
    let mut best: Option<((bool, usize), (usize, usize))> = None;
    let mut tail = 0;
    for (head, &first) in heads.iter().enumerate().take(all) {
        tail = tail.max(head + 1);
        let used = |tail: usize| {
            let last = tails[all - tail];
            first + gap(first) + 1 + gap(last) + last
        };
        while tail <= all && used(tail) > room {
            tail += 1;
        }
        if tail > all {
            break;
        }
        let value = (head > 0, used(tail));
        if best.is_none_or(|(least, _)| value >= least) {
            best = Some((value, (head, tail)));
        }
    }
    let ((_, used), (head, tail)) = best?;
    let (first, last) = (pieces[..head].concat(), pieces[tail..].concat());
    let (first, last) = (first.trim_end(), last.trim_start());
    let gap = |shown: &str| if shown.is_empty() { "" } else { space };
    (2 * used > room).then(|| format!("{first}{}…{}{last}", gap(first), gap(last)))
}

/// Returns how many columns the first 0, 1, 2, … pieces take, without the white space that `trim`
/// removes from the end at which pieces are added.
fn trimmed_columns<'a>(
    pieces: impl Iterator<Item = &'a str>,
    trim: impl Fn(&'a str) -> &'a str,
) -> Vec<usize> {
    let mut all = 0;
    let mut trimmed = 0;
    let pieces = pieces.map(|piece| {
        let kept = trim(piece);
        if !kept.is_empty() {
            trimmed = all + columns(kept);
        }
        all += columns(piece);
        trimmed
    });
    std::iter::once(0).chain(pieces).collect()
}

/// Shortens `text` to `room` columns by replacing its middle with `…`, even within a word.
fn cut(text: &str, room: usize) -> String {
    let Some(room) = room.checked_sub(1) else {
        return String::new();
    };
    let fitting = |chars: &mut dyn Iterator<Item = char>, room: usize| {
        let mut used = 0;
        chars
            .take_while(|&c| {
                used += width_of(c);
                used <= room
            })
            .collect::<Vec<_>>()
    };
    let head = fitting(&mut text.chars(), room.div_ceil(2));
    let mut tail = fitting(&mut text.chars().rev(), room / 2);
    tail.reverse();
    head.into_iter().chain(['…']).chain(tail).collect()
}

/// Shortens a name to `room` columns. A suffix, as in `rustc (4290)  12 threads` or `cc1  x23`, is
/// either kept whole or dropped, starting with the last one. A remark in parentheses, as in
/// `unknown thread (switch not reported)`, is dropped if it does not fit.
pub(in crate::text) fn elide_name(text: &str, room: usize) -> String {
    /// Minimum number of columns for a shortened name. Anything shorter would be less useful than
    /// the pid.
    const SHORTEST: usize = 8;
    if columns(text) <= room {
        return text.to_owned();
    }
    let (name, _) = text.split_once("  ").unwrap_or((text, ""));
    let is_pid = |pid: &str| {
        pid.strip_suffix(')')
            .is_some_and(|pid| pid.parse::<u32>().is_ok())
    };
    let name = match name.rsplit_once(" (") {
        Some((name, pid)) if is_pid(pid) => name,
        Some((name, remark)) if remark.ends_with(')') => return elide(name, room),
        _ => name,
    };
    let behind = &text[name.len()..];
    let (pid, _) = behind.split_once("  ").unwrap_or((behind, ""));
    let left = |kept: &str| room.saturating_sub(columns(kept));
    if let Some(kept) = [behind, pid]
        .into_iter()
        .find(|kept| left(kept) >= columns(name))
    {
        return format!("{name}{kept}");
    }
    match left(pid) {
        room if room >= SHORTEST => format!("{}{pid}", elide(name, room)),
        _ => elide(name, room),
    }
}
