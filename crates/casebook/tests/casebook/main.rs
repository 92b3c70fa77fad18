//! Tests that apply to every case.

use std::thread;

use ticktax_casebook::{Case, CaseFile, Judgement, all, find, fit, judge};

mod each;
mod published;
mod slices;

/// Loads a case and compares its model with the published rows.
fn judged(name: &str) -> (&'static dyn Case, CaseFile, Judgement) {
    let Some(case) = find(name) else {
        panic!("no case {name}")
    };
    let file = match case.file() {
        Ok(file) => file,
        Err(error) => panic!("{error}"),
    };
    let judgement = judge::judge(case, &file);
    (case, file, judgement)
}

#[test]
fn every_case_matches_its_file() {
    for case in all() {
        let (_, file, judgement) = judged(case.name());
        assert_eq!(file.name, case.name());
        let off: Vec<_> = judgement
            .lines
            .iter()
            .filter(|line| !line.as_expected())
            .collect();
        assert!(off.is_empty(), "{}: {off:#?}", case.name());
        assert!(!judgement.lines.is_empty());
    }
}

#[test]
fn every_file_of_a_case_is_a_case() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cases");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "published.toml")
        .collect();
    files.sort();
    let mut names: Vec<String> = all().map(|case| format!("{}.toml", case.name())).collect();
    names.sort();
    assert_eq!(files, names);
}

/// Fitting to the rows in the file must reproduce every fitted constant in the file. This ensures
/// that no constant is tuned by hand.
#[test]
fn every_fitted_constant_is_reproduced_by_the_fit() {
    // Fits take most of this program's time, so each case has its own thread.
    thread::scope(|scope| {
        for case in all() {
            scope.spawn(|| constants_are_reproduced_by_the_fit(case));
        }
    });
}

fn constants_are_reproduced_by_the_fit(case: &dyn Case) {
    let (_, file, _) = judged(case.name());
    let Some(fitted) = fit::fit(case, &file) else {
        return;
    };
    let in_file = judge::misfit(case, &file, &file.values());
    assert!(
        in_file <= fitted.misfit * 1.02 + 1e-3,
        "{}: {in_file} in the file, {} by the fit: {:?}",
        case.name(),
        fitted.misfit,
        fitted.values
    );
}
