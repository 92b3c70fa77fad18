//! Checks that libraries return typed errors. Only the command and the tests may return text as an
//! error.

use std::collections::BTreeSet;

use crate::code::code_of;
use crate::workspace::{read, shown, sources};

/// Files that still return text as an error. Remove a file from the list once its errors are typed.
const TEXT_ERRORS: &[&str] = &[
    "crates/experiment/src/vary.rs",
    "crates/predict/src/axes/field.rs",
    "crates/predict/src/axes/task.rs",
    "crates/predict/src/axes/values.rs",
    "crates/predict/src/sweep/plan.rs",
    "crates/traffic/src/experiment/factors.rs",
];

#[test]
fn libraries_do_not_return_text_as_errors() {
    let files: Vec<(String, String)> = sources("rs")
        .iter()
        .map(|file| (shown(file), read(file)))
        .filter(|(path, _)| is_library(path))
        .collect();
    let tests: Vec<String> = files
        .iter()
        .flat_map(|(path, text)| test_modules(path, text))
        .collect();
    let is_test = |path: &str| {
        let stem = path.trim_end_matches(".rs");
        tests
            .iter()
            .any(|module| stem == module || stem.starts_with(&format!("{module}/")))
    };
    let mut wrong = Vec::new();
    let mut listed: BTreeSet<&str> = TEXT_ERRORS.iter().copied().collect();
    for (path, text) in files.iter().filter(|(path, _)| !is_test(path)) {
        let product = text.split("#[cfg(test)]\nmod tests {").next();
        let count = text_errors(&code_of(product.unwrap_or_default()));
        if count > 0 && !listed.remove(path.as_str()) {
            wrong.push(format!("{path} has String as an error {count} times"));
        }
    }
    wrong.extend(
        listed
            .iter()
            .map(|path| format!("{path} has typed errors: remove it from TEXT_ERRORS")),
    );
    crate::report(&wrong);
}

fn is_library(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["crates", package, "src", ..] if package != "ticktax")
}

/// Returns the modules that `text`, the contents of the file at `path`, declares only for tests.
/// They are returned as paths without `.rs`.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.trim_end_matches(".rs");
    let folder = match stem {
        "lib" | "mod" => folder.to_owned(),
        stem => format!("{folder}/{stem}"),
    };
    let declared = text.split("#[cfg(test)]").skip(1).filter_map(|rest| {
        let (declaration, _) = rest.split_once(';')?;
        let (_, name) = declaration.split_once("mod ")?;
        let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
        is_name.then(|| format!("{folder}/{name}"))
    });
    declared.collect()
}

/// Counts occurrences of the type `Result<_, String>`, and of associated types `Err` and `Error`
/// that are `String`.
fn text_errors(code: &str) -> usize {
    let code: String = code.split_whitespace().collect();
    let results = code.match_indices("Result<");
    let results = results.filter(|(at, word)| has_text_error(&code[at + word.len()..]));
    let associated = ["typeErr=String;", "typeError=String;"];
    results.count()
        + associated
            .map(|word| code.matches(word).count())
            .iter()
            .sum::<usize>()
}

/// Returns whether a type's last generic argument is `String`. `arguments` starts after the opening
/// bracket.
fn has_text_error(arguments: &str) -> bool {
    let mut depth = 1;
    let mut before = ' ';
    for (at, character) in arguments.char_indices() {
        match character {
            '<' => depth += 1,
            // The `>` in the arrow of a function type does not close a bracket.
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            let list = arguments[..at].trim_end_matches(',');
            return list.ends_with(",String") || list.ends_with("::String");
        }
        before = character;
    }
    false
}

#[test]
fn text_errors_are_counted() {
    for (code, count) in [
        ("fn f() -> Result<Vec<u8>, String> {", 1),
        (
            "fn f() -> Result<\n    (A, Box<dyn Fn(u8) -> B>),\n    String,\n> {",
            1,
        ),
        ("Option<Result<(), std::string::String>>", 1),
        (
            "set: fn(u8) -> Result<(), String>, get: fn() -> Result<String, String>,",
            2,
        ),
        ("type Err = String;", 1),
        (
            "fn f() -> Result<String, Error> { BTreeMap::<u8, String>::new() }",
            0,
        ),
        ("fn f() -> Result<BTreeMap<u8, String>, Error>", 0),
        ("fn f() -> io::Result<String>", 0),
    ] {
        assert_eq!(text_errors(code), count, "{code}");
    }
}

#[test]
fn test_modules_are_found() {
    let text = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\nmod tests {\n    use a;\n}\n\
                #[cfg(test)]\npub(crate) mod c;\n";
    let modules = |path| test_modules(path, text);
    assert_eq!(modules("x/src/lib.rs"), ["x/src/b", "x/src/c"]);
    assert_eq!(modules("x/src/d.rs"), ["x/src/d/b", "x/src/d/c"]);
}
