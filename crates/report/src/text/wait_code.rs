//! Words for the user code in which a thread waited, and for the object that it waited for.

use ticktax_model::Nanos;
use ticktax_model::recording::{CodePlace, WaitCode};
use ticktax_model::victim::Blocked;

use super::numbers::{counted, displayed, grouped};
use super::page::{Page, Tone, tied};

/// Maximum number of functions named.
const FUNCTIONS: usize = 3;

/// Maximum number of different codes listed for a place.
const CODES: usize = 3;

/// Names of files that contain nothing but the functions with which programs call the kernel.
const LIBRARIES: [&str; 5] = ["ld-linux", "ld-musl", "libc.", "libc-", "libpthread"];

/// Prefixes of the functions with which programs call the kernel or wait for a lock.
const GENERAL: [&str; 6] = ["<std::", "__", "alloc::", "core::", "parking_lot", "std::"];

/// Describes an object: `on 0x7f00c0`, `on pipe:[12]` or `of /var/lib/db`. Only the last part of a
/// path is named if `is_short`.
pub(super) fn object(code: &WaitCode, is_short: bool) -> Option<String> {
    let object = code.object.as_deref()?;
    let is_path = object.starts_with('/') || object.starts_with("…/");
    let word = if is_path { "of" } else { "on" };
    let whole = object.split(" (inode ").next();
    let name = whole.and_then(|path| path.rsplit('/').next());
    let name = name.filter(|_| is_path && is_short);
    let name = name.filter(|name| !name.is_empty()).unwrap_or(object);
    Some(format!("{word} {}", displayed(name)))
}

/// Names the functions on a stack, without those that only pass the call on to the kernel.
fn functions(stack: &[CodePlace]) -> Option<String> {
    let is_general = |place: &CodePlace| {
        let function = place.function.as_deref().unwrap_or_default();
        let is_library = LIBRARIES.iter().any(|file| place.file.starts_with(file));
        is_library || GENERAL.iter().any(|prefix| function.starts_with(prefix))
    };
    let own = stack.iter().position(|place| !is_general(place));
    let shown = &stack[own.unwrap_or(0)..];
    let name = |place: &CodePlace| match (&place.function, place.offset) {
        (Some(function), _) => displayed(function).to_string(),
        (None, Some(offset)) => format!("{}+{offset:#x}", displayed(&place.file)),
        (None, None) => displayed(&place.file).to_string(),
    };
    // The outermost functions start the program, and are the same for each of its waits.
    let shown = shown
        .iter()
        .enumerate()
        .take_while(|(depth, place)| *depth == 0 || !is_general(place))
        .take(FUNCTIONS)
        .map(|(_, place)| name(place));
    let names: Vec<String> = shown.collect();
    (!names.is_empty()).then(|| names.join(" <- "))
}

/// Describes the object and the functions, or returns `None` if nothing is known.
pub(super) fn in_words(code: &WaitCode) -> Option<String> {
    let own = functions(&code.stack).map(|names| format!("from {names}"));
    let waker = functions(&code.woken_from).map(|names| format!("woken from {names}"));
    let parts = [object(code, false), own, waker].into_iter().flatten();
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Writes the codes of a place where threads were blocked.
pub(super) fn of_place(page: &mut Page, place: &Blocked) {
    let mut lines: Vec<(String, Nanos, u64)> = Vec::new();
    for sum in &place.codes {
        let Some(words) = in_words(&sum.code) else {
            continue;
        };
        // Codes can differ in functions that are not named here.
        match lines.iter_mut().find(|(other, ..)| *other == words) {
            Some((_, time, count)) => (*time, *count) = (*time + sum.time, *count + sum.count),
            None => lines.push((words, sum.time, sum.count)),
        }
    }
    for (words, time, count) in lines.into_iter().take(CODES) {
        let share = if place.coded == place.count {
            format!("{time} in {}", counted(count, "wait"))
        } else {
            let all = counted(place.coded, "recorded wait");
            format!("{time} in {} of {all}", grouped(count))
        };
        let text = format!("{words} {}", tied(format!("({share})")));
        page.paragraph(Tone::Faint, "    ", &text);
    }
}

/// Writes how many codes are missing from the lines above.
pub(super) fn left_out(page: &mut Page, codes: u64) {
    if codes > 0 {
        let waits = counted(codes, "recorded wait");
        let text =
            format!("The code of {waits} is missing here, because it did not fit into memory.");
        page.paragraph(Tone::Faint, "  ", &text);
    }
}

#[cfg(test)]
mod tests {
    use ticktax_model::recording::WaitCode;

    use super::{in_words, left_out, object};
    use crate::text::page::Page;

    fn words(text: &str) -> Option<String> {
        let code = WaitCode::from_text(text).named(|file, offset| match (file, offset) {
            ("libc.so.6", 1) => Some("fsync"),
            ("libc.so.6", 2) => Some("__libc_start_main"),
            ("db", 1) => Some("std::sys::fs::fsync"),
            ("db", 2) => Some("wal::flush"),
            ("db", 3) => Some("main"),
            ("db", 4) => Some("std::rt::lang_start"),
            _ => None,
        });
        in_words(&code)
    }

    #[test]
    fn functions_of_the_program_come_first() {
        assert_eq!(words("\t"), None);
        let stack = "\tlibc.so.6+0x1;db+0x1;db+0x2;db+0x3;db+0x4;libc.so.6+0x2";
        assert_eq!(words(stack).as_deref(), Some("from wal::flush <- main"));
        let unknown = "\tlibc.so.6+0x1;db+0x99;db";
        assert_eq!(words(unknown).as_deref(), Some("from db+0x99 <- db"));
        let waker = "0x7f00\tdb+0x3\tlibc.so.6+0x1;db+0x2;db+0x3";
        let expected = "on 0x7f00, from main, woken from wal::flush <- main";
        assert_eq!(words(waker).as_deref(), Some(expected));
        let only = "\tlibc.so.6+0x1;libc.so.6+0x2";
        assert_eq!(words(only).as_deref(), Some("from fsync"));
    }

    #[test]
    fn an_object_is_a_path_or_something_else() {
        assert_eq!(words("/db/wal\t").as_deref(), Some("of /db/wal"));
        assert_eq!(
            words("0x7f00\tdb+0x3").as_deref(),
            Some("on 0x7f00, from main")
        );
        let short = |text| object(&WaitCode::from_text(text), true);
        assert_eq!(short("/db/wal").as_deref(), Some("of wal"));
        assert_eq!(short("…/wal (inode 3 on vda)").as_deref(), Some("of wal"));
        assert_eq!(short("pipe:[3]").as_deref(), Some("on pipe:[3]"));
        assert_eq!(short("/").as_deref(), Some("of /"));
    }

    #[test]
    fn missing_codes_are_counted() {
        let text = |codes| -> String {
            let mut page = Page::new(crate::text::TextStyle::default());
            left_out(&mut page, codes);
            page.finish().into()
        };
        assert_eq!(text(0), "");
        let words = "  The code of 12 recorded waits is missing here, because it did not fit \
                     into\n  memory.\n";
        assert_eq!(text(12), words);
    }
}
