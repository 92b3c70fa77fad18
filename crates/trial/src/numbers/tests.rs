//! Tests how valid and invalid files are read and compared.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use ticktax_model::comparison::{Better, Comparison, Unit, Verdict};

use super::{NumberFiles, NumbersError, Question};

const STOCK: &str =
    "# make -j bzImage, stock\n61.817\n61.871\n\n61.993 # s\n62.015\n62.049\n62.077\n";
const PATCHED: &str = "time,run\n60.177,a\n60.313,b\n60.331,c\n60.349,d\n60.462,e\n60.792,f\n";

/// Creates a temporary directory with two files.
fn files(first: (&str, &str), second: (&str, &str)) -> (TempDir, PathBuf, PathBuf) {
    let folder = TempDir::new().unwrap();
    let write = |(name, text): (&str, &str)| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (a, b) = (write(first), write(second));
    (folder, a, b)
}

fn are_numbers(a: &Path, b: &Path) -> Result<bool, NumbersError> {
    Ok(NumberFiles::open(a, b)?.is_some())
}

fn compare(a: &Path, b: &Path, question: &Question) -> Result<Comparison, NumbersError> {
    let files = NumberFiles::open(a, b)?.expect("lists of numbers");
    files.compare(question, "0")
}

fn question() -> Question {
    Question {
        difference: 0.05,
        ..Question::default()
    }
}

#[test]
fn a_text_file_and_a_csv_file_are_compared() {
    let (_folder, a, b) = files(("stock.txt", STOCK), ("patched.csv", PATCHED));
    assert!(are_numbers(&a, &b).unwrap());
    let result = compare(&a, &b, &question()).unwrap();
    let effect = result.effects[0].contrast.effect.unwrap();
    assert_eq!(format!("{:+.2} %", 100.0 * effect.value), "-2.53 %");
    let p = result.effects[0].chance.unwrap();
    assert_eq!(format!("{p:.4}"), "0.0022");
    assert_eq!((result.arms[0].runs, result.arms[1].runs), (6, 6));
    assert_eq!(result.arms[1].setting("name"), Some("time"));
    let metric = &result.metrics[0];
    assert_eq!((metric.unit, metric.better), (Unit::None, Better::Unknown));
    assert_eq!(result.effects[0].contrast.verdict, Verdict::Differs);
}

const EXPORT: &str = r#"{"results": [
    {"command": "make", "mean": 2.0, "times": [2.0, 2.1, 1.9, 2.05, 9.0], "exit_codes": [0, 0, 0, 0, 1]},
    {"command": "ninja", "mean": 1.0, "times": [1.0, 1.1, 0.9, 1.05], "exit_codes": [0, 0, 0, 0]}
]}"#;

#[test]
fn two_results_of_one_export_are_compared() {
    let (_folder, a, b) = files(("a.json", EXPORT), ("b.json", EXPORT));
    assert!(are_numbers(&a, &b).unwrap());
    let chosen = Question {
        results: vec!["make".to_owned(), "2".to_owned()],
        ..question()
    };
    let result = compare(&a, &a, &chosen).unwrap();
    let metric = &result.metrics[0];
    assert_eq!((metric.unit, metric.better), (Unit::S, Better::Lower));
    assert_eq!((result.arms[0].runs, result.arms[0].failed), (5, 1));
    assert_eq!(result.arms[1].setting("name"), Some("ninja"));
    assert_eq!(result.effects[0].contrast.verdict, Verdict::Better);
    let Err(NumbersError::Choice { why, .. }) = compare(&a, &b, &question()) else {
        panic!("two results");
    };
    assert!(
        why.contains("1 make, 2 ninja") && why.contains("--result"),
        "{why}"
    );
}

#[test]
fn invalid_lists_are_reported_with_line_and_reason() {
    let error_text = |name: &str, text: &str| {
        let (_folder, a, b) = files((name, text), ("b.txt", "1\n2\n"));
        let question = Question {
            results: vec!["3".to_owned()],
            ..question()
        };
        compare(&a, &b, &question).unwrap_err().to_string()
    };
    for (name, text, why) in [
        ("a.txt", "1\n2 ms\n", "line 2: `2 ms` is not a number"),
        ("a.txt", "1\n\n# x\n3,5\n", "line 4: `3,5` is not a number"),
        ("a.txt", "1\nNaN\n", "line 2: `NaN` is not finite"),
        ("a.txt", "inf\n", "line 1: `inf` is not finite"),
        ("a.txt", "1e999\n", "not finite"),
        ("a.txt", "1\n-1e300\n", "it contains -1e300"),
        ("a.txt", "1\n1e-300\n", "it contains 1e-300"),
        ("a.txt", "", "no numbers"),
        ("a.txt", "# nothing\n", "no numbers"),
        ("a.csv", "", "no numbers"),
        ("a.csv", "time\n", "no numbers"),
        ("a.csv", "a,b\n1,2\n3,4\n", "--column: 1 a, 2 b"),
        ("a.csv", "1,2\n3,4\n", "1 column 1, 2 column 2"),
        ("a.csv", "a,b\n1,2\n3\n", "line: 3"),
        ("a.csv", "a\n1\nx\n", "line 3: `x` is not a number"),
        ("a.csv", "a\n1\nnan\n", "line 3: `nan` is not finite"),
        ("a.csv", "a\n1\n\"x\ny\"\n", "`x y` is not a number"),
        ("a.json", r#"{"results": []}"#, "no results"),
        ("a.json", EXPORT, "no result `3`; choose from 1 make"),
        (
            "a.json",
            r#"{"results": [{"command": "a"}, {}]}"#,
            "not a hyperfine export",
        ),
    ] {
        let error = error_text(name, text);
        assert!(error.contains(why), "{name} {text:?}: {error}");
        assert!(error.contains(name) && !error.contains('\n'), "{error}");
    }
    let long = "1\n".repeat(1_000_001);
    assert!(error_text("a.txt", &long).contains("more than 1000000 numbers"));
    let (_folder, a, b) = files(("a.txt", "1\n"), ("b.txt", "\u{0}"));
    assert!(compare(&a, &b, &question()).is_err());
    fs::write(&b, [0xff, 0xfe]).unwrap();
    let error = compare(&a, &b, &question()).unwrap_err();
    assert!(error.to_string().contains("not a text file"), "{error}");
    fs::remove_file(&b).unwrap();
    let error = are_numbers(&a, &b).unwrap_err();
    assert!(error.to_string().contains("no such file"), "{error}");
}

/// A pipe must be read to its end, because a shell passes `<(sort -n times)` as a pipe.
#[test]
fn a_pipe_is_read_completely() {
    let pipe = |text: &str| {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        let path = format!("/proc/self/fd/{}", reader.as_raw_fd());
        (reader, PathBuf::from(path))
    };
    let ((_first, a), (_second, b)) = (pipe(STOCK), pipe("12\n14\n"));
    let result = compare(&a, &b, &question()).unwrap();
    assert_eq!((result.arms[0].runs, result.arms[1].runs), (6, 2));
    assert!((result.arms[1].value(0).unwrap() - 13.0).abs() < 1e-12);
}

#[test]
fn a_column_is_chosen_by_name_or_number() {
    let table = "a,b\n1,5\n2,6\n3,7\n4,8\n";
    let (_folder, a, b) = files(("a.csv", table), ("b.tsv", "b\tx\n9\t5\n8\t6\n"));
    let means = |columns: &[&str]| {
        let question = Question {
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            ..question()
        };
        let result = compare(&a, &b, &question).unwrap();
        let mean = |arm: usize| result.arms[arm].value(0).unwrap();
        (mean(0), mean(1))
    };
    assert_eq!(means(&["b"]), (6.5, 8.5));
    assert_eq!(means(&["1", "x"]), (2.5, 5.5));
}

#[test]
fn a_recording_is_not_a_list() {
    let (_folder, a, b) = files(("a.txt", "1\n2\n"), ("b", "PAR1…"));
    let error = are_numbers(&a, &b).unwrap_err();
    assert!(matches!(error, NumbersError::Mixed { .. }), "{error}");
    let (_folder, a, b) = files(
        ("a.json", r#"{"document": "statement"}"#),
        ("b.parquet", ""),
    );
    assert!(!are_numbers(&a, &b).unwrap());
    let (_folder, a, b) = files(("a.csv", "1\n"), ("b.json", "{}"));
    assert!(are_numbers(&a, &b).is_err());
}
