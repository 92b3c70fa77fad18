//! Checks that functions do not take tuples apart in their parameter lists. A tuple such as `(from,
//! to): (Nanos, Nanos)` has neither a name nor documentation, and callers can swap its parts. Use
//! separate parameters, or a struct if the values belong together.

use std::collections::BTreeMap;

use crate::code::code_of;
use crate::workspace::{read, shown, sources};

/// Files whose functions still have tuple parameters, and how many they have. Lower a number once
/// there are fewer, and remove a file once it has none.
const REMAINING: &[(&str, usize)] = &[
    ("bench/examples/predict_live.rs", 2),
    ("crates/analysis/src/advice.rs", 1),
    ("crates/analysis/src/pace/lateness.rs", 2),
    ("crates/analysis/src/pace/lateness/interval.rs", 4),
    ("crates/analysis/src/pace/lateness/tests.rs", 1),
    ("crates/analysis/src/victim.rs", 1),
    ("crates/analysis/src/victim/losses.rs", 3),
    ("crates/analysis/src/victim/rhythm.rs", 1),
    ("crates/analysis/src/victim/stalls.rs", 2),
    ("crates/analysis/src/victim/stalls/tests.rs", 1),
    ("crates/analysis/src/victim/wakers.rs", 1),
    ("crates/predict/src/whatif.rs", 2),
    ("crates/report/src/html/plots/axis.rs", 2),
    ("crates/report/src/html/plots/runs.rs", 1),
    ("crates/report/src/text/comparison/arms.rs", 1),
    ("crates/report/src/text/comparison/recordings.rs", 1),
    ("crates/report/src/text/kernels.rs", 1),
    ("crates/report/src/text/page.rs", 1),
    ("crates/report/src/text/screen/advice/quota.rs", 1),
    ("crates/report/src/text/tests/net_experiment.rs", 1),
    ("crates/report/src/text/tests/trials.rs", 1),
    ("crates/report/src/text/tests/victims.rs", 1),
    ("crates/report/tests/stalls/maker.rs", 1),
    ("crates/ticktax/src/sim.rs", 1),
    ("crates/traffic/src/experiment/effects/tests.rs", 1),
    ("crates/trial/src/changes.rs", 1),
    ("crates/trial/src/changes/judge.rs", 4),
    ("testing/fixture/src/lib.rs", 1),
];

#[test]
fn functions_have_no_tuple_parameters() {
    let mut wrong = Vec::new();
    let mut remaining: BTreeMap<&str, usize> = REMAINING.iter().copied().collect();
    for file in sources("rs") {
        let path = shown(&file);
        let code = code_of(&read(&file));
        let found = tuple_parameters(&code);
        let allowed = remaining.remove(path.as_str()).unwrap_or_default();
        if found.len() > allowed {
            let names = found.join(", ");
            wrong.push(format!(
                "{path} has {} tuple parameters, {allowed} at most: {names}",
                found.len()
            ));
        } else if found.len() < allowed {
            wrong.push(format!(
                "{path} has only {} tuple parameters: update REMAINING",
                found.len()
            ));
        }
    }
    let missing = remaining.keys();
    wrong.extend(missing.map(|path| format!("{path} does not exist: remove it from REMAINING")));
    crate::report(&wrong);
}

/// Returns the function's name for each tuple parameter in `code`, which must not contain comments.
fn tuple_parameters(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, keyword) in code.match_indices("fn ") {
        let is_word = code[..at]
            .chars()
            .next_back()
            .is_none_or(|before| !before.is_alphanumeric() && before != '_');
        let declaration = &code[at + keyword.len()..];
        let Some((name, parameters)) = signature(declaration).filter(|_| is_word) else {
            continue;
        };
        let parameters = list(parameters).into_iter();
        let tuples = parameters.filter(|parameter| is_tuple(parameter));
        found.extend(tuples.map(|_| name));
    }
    found
}

/// Returns whether a parameter's pattern is a tuple. Property tests draw values `in` a strategy, so
/// their parameters have no type.
fn is_tuple(parameter: &str) -> bool {
    let pattern = parameter.trim_start().trim_start_matches('&');
    let rest = pattern.strip_prefix('(').and_then(after_list);
    rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
}

/// Returns the function's name, and the code after the opening parenthesis of its parameters.
/// `declaration` starts with the name.
fn signature(declaration: &str) -> Option<(&str, &str)> {
    let end = declaration.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    let (name, rest) = declaration.split_at(end);
    let rest = match rest.strip_prefix('<') {
        Some(generics) => after_list(generics)?,
        None => rest,
    };
    Some((name, rest.strip_prefix('(')?))
}

/// Returns the code after a list's closing bracket. `code` starts after its opening bracket.
fn after_list(code: &str) -> Option<&str> {
    // A comma or the closing bracket follows each item.
    let length: usize = list(code).iter().map(|item| item.len() + 1).sum();
    code.get(length..)
}

/// Splits a list at its commas. `code` starts after the list's opening bracket, and can continue
/// after its closing bracket.
fn list(code: &str) -> Vec<&str> {
    let (mut depth, mut start, mut before) = (0, 0, ' ');
    let mut items = Vec::new();
    for (at, character) in code.char_indices() {
        match character {
            '(' | '[' | '{' | '<' => depth += 1,
            // The `>` in the arrow of a function type does not close a bracket.
            '>' if before == '-' => {}
            ')' | ']' | '}' | '>' if depth == 0 => {
                items.push(&code[start..at]);
                return items;
            }
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                items.push(&code[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = character;
    }
    items
}

#[test]
fn tuple_parameters_are_found() {
    let cases: [(&str, &[&str]); 8] = [
        ("fn f((a, b): (A, B)) {}", &["f"]),
        ("pub fn f(&self, x: X,\n    (a, _): &Pair,\n) -> Y;", &["f"]),
        ("fn f(&(a, b): &(A, B), (c, d): (C, D))", &["f", "f"]),
        (
            "fn f<A: Fn(B) -> (C, D), const N: usize>((a, b): A)",
            &["f"],
        ),
        ("fn f(pair: (A, B)) { g(|(a, b)| h(a, b)) }", &[]),
        ("fn f(g: impl Fn((A, B)) -> C, h: fn((A, B)))", &[]),
        ("fn f<T>() -> (A, B) { let (a, b) = c; }", &[]),
        ("proptest! { fn f((a, b) in c(), d in (e, f)) {} }", &[]),
    ];
    for (code, names) in cases {
        assert_eq!(tuple_parameters(code), names, "{code}");
    }
}
