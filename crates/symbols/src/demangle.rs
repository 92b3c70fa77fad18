//! Turns symbols into names that people know.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// Maximum number of characters in a name. The middle of a longer one is left out: the beginning
/// names the crate or namespace, and the end the function.
const LONGEST: usize = 120;

/// Maximum number of bytes that a demangler may write. A short symbol can stand for gigabytes.
const MOST_WRITTEN: usize = 16 << 10;

/// Maximum length of C++ symbols that are demangled. Longer ones keep their raw form. The demangler
/// limits its recursion, but not the time that it takes.
const LONGEST_CPP: usize = 1 << 10;

/// Suffixes with which compilers mark a copy or a part of a function. A number can follow.
const CLONES: [&str; 9] = [
    ".actalias",
    ".cold",
    ".constprop",
    ".isra",
    ".llvm",
    ".localalias",
    ".lto_priv",
    ".part",
    ".specialized",
];

/// Returns the name of the function that `symbol` stands for, in one line without control
/// characters and semicolons. Rust names lose their hash, and C++ names their parameters.
pub fn readable(symbol: &str) -> String {
    // Linkers append the version to the names of exported functions: `memcpy@@GLIBC_2.14`.
    let symbol = match symbol.split_once('@') {
        Some((name, _)) if !name.is_empty() => name,
        _ => symbol,
    };
    let symbol = original(symbol);
    shortened(
        &rust(symbol)
            .or_else(|| cpp(symbol))
            .unwrap_or_else(|| symbol.to_owned()),
    )
}

/// Returns the name of the function that a compiler copied or split.
fn original(symbol: &str) -> &str {
    let mut name = symbol;
    while let Some((rest, last)) = name.rsplit_once('.') {
        let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
        let suffix = if is_number { rest } else { name };
        let Some(stem) = CLONES.iter().find_map(|clone| suffix.strip_suffix(clone)) else {
            break;
        };
        if stem.is_empty() {
            break;
        }
        name = stem;
    }
    name
}

fn rust(symbol: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(symbol).ok()?;
    let mut written = Limited::default();
    write!(written, "{name:#}").ok()?;
    Some(written.0)
}

fn cpp(symbol: &str) -> Option<String> {
    if !symbol.starts_with("_Z") || symbol.len() > LONGEST_CPP {
        return None;
    }
    let parsed = Symbol::new(symbol.as_bytes()).ok()?;
    let options = DemangleOptions::new().no_params().no_return_type();
    let mut written = Limited::default();
    parsed.structured_demangle(&mut written, &options).ok()?;
    Some(written.0)
}

/// Text of limited length. Writing more fails.
#[derive(Default)]
struct Limited(String);

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MOST_WRITTEN {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Replaces characters that would break a line or a folded stack, and leaves out the middle of a
/// long name.
fn shortened(name: &str) -> String {
    let clean = |c: char| {
        if c == ';' || c.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    let count = name.chars().count();
    if count <= LONGEST {
        return name.chars().map(clean).collect();
    }
    let half = (LONGEST - 1) / 2;
    let first = name.chars().take(half);
    let last = name.chars().skip(count - half);
    first.chain(['…']).chain(last).map(clean).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{LONGEST, readable};

    #[test]
    fn names_are_demangled() {
        for (symbol, name) in [
            ("main", "main"),
            ("main.main", "main.main"),
            (
                "runtime.(*mheap).alloc.func1",
                "runtime.(*mheap).alloc.func1",
            ),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("@odd", "@odd"),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                "core::fmt::Write::write_fmt",
            ),
            (
                "_RNvCskwGfYPst2Cb_3foo16example_function",
                "foo::example_function",
            ),
            ("_ZN5space3fooEibc", "space::foo"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector<int, std::allocator<int> >::push_back",
            ),
            ("update.isra.0.cold", "update"),
            ("update.constprop.12", "update"),
            ("_ZN5space3fooEibc.part.3", "space::foo"),
            ("_ZN3foo3bar17h0123456789abcdefE.llvm.1234567", "foo::bar"),
            (".cold", ".cold"),
            ("_Z", "_Z"),
        ] {
            assert_eq!(readable(symbol), name);
        }
    }

    #[test]
    fn a_name_fits_into_a_line_and_a_folded_stack() {
        assert_eq!(readable("a;b\n\x1b[31m"), "a\u{fffd}b\u{fffd}\u{fffd}[31m");
        let long = readable(&format!("begin{}end", "é".repeat(300)));
        assert!(long.starts_with("begin") && long.ends_with("end"));
        assert_eq!(long.chars().count(), LONGEST - 1);
    }

    #[test]
    fn a_name_that_would_be_huge_keeps_its_raw_form() {
        // Each type has the one before it as both arguments, so its name is twice as long.
        let nested = |depth: usize| {
            let ids = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ".chars().take(depth);
            let types = ids.flat_map(|id| ['S', '0', '_', 'I', 'S', id, '_', 'S', id, '_', 'E']);
            format!("_Z1fI1AIiiE{}Evv", types.collect::<String>())
        };
        assert_eq!(
            readable(&nested(1)),
            "f<A<int, int>, A<A<int, int>, A<int, int> > >"
        );
        assert!(readable(&nested(6)).starts_with("f<A<"));
        assert!(readable(&nested(35)).starts_with("_Z1fI1A"));
        let long = format!("_Z1f{}", "i".repeat(2_000));
        assert!(readable(&long).starts_with("_Z1fiii"));
    }

    proptest! {
        #[test]
        fn any_symbol_has_a_clean_name(prefix in "(_R|_ZN|_Z|__Z|)", symbol in ".{0,200}") {
            let name = readable(&(prefix + &symbol));
            prop_assert!(name.chars().count() <= LONGEST);
            prop_assert!(!name.chars().any(|c| c == ';' || c.is_control()));
        }

        #[test]
        fn any_sequence_of_codes_has_a_clean_name(
            codes in prop::collection::vec(
                "(N|E|S_|S0_|St|I|J|3foo|1a|T_|T0_|Dp|Dt|cv|L|X|i|v|P|R|O|K|F|C1|D0|B|0|_)",
                0..60,
            ),
            prefix in "(_RNv|_RINv|_ZN|_Z)",
        ) {
            let name = readable(&(prefix + &codes.concat()));
            prop_assert!(name.chars().count() <= LONGEST);
        }
    }
}
