//! Reads the output of `hyperfine --export-json`, which contains the time of each run in seconds.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use ticktax_model::comparison::{Better, Unit};

use super::{NumberList, Problem, listed, place};

/// The fields that tell a hyperfine export from a ticktax document.
#[derive(Deserialize)]
struct Export {
    results: Option<Value>,
    document: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Timed {
    command: String,
    #[serde(default)]
    times: Option<Vec<f64>>,
    /// The runs' exit codes. A run that was killed by a signal has `null`.
    #[serde(default)]
    exit_codes: Vec<Option<i32>>,
}

/// Returns the results in an export, or `None` if `text` is not an export.
pub(super) fn results(text: &str) -> Option<Value> {
    let export: Export = serde_json::from_str(text).ok()?;
    let results = export.results.filter(Value::is_array);
    results.filter(|_| export.document.is_none())
}

/// Reads the run times of the chosen result or, if none was chosen, of the export's only result.
/// Skips failed runs.
pub(super) fn read(results: &Value, chosen: Option<&str>) -> Result<NumberList, Problem> {
    let results = Vec::<Timed>::deserialize(results)
        .map_err(|error| Problem::Content(format!("not a hyperfine export: {error}")))?;
    let names: Vec<String> = results
        .iter()
        .map(|result| result.command.clone())
        .collect();
    let all = listed(&names);
    let place = match (chosen, results.len()) {
        (_, 0) => return Err(Problem::Content("it contains no results".to_owned())),
        (Some(chosen), _) => place(chosen, &names).ok_or_else(|| {
            Problem::Choice(format!("it has no result `{chosen}`; choose from {all}"))
        })?,
        (None, 1) => 0,
        (None, _) => {
            return Err(Problem::Choice(format!(
                "choose a result with --result N (give it twice if the files differ): {all}"
            )));
        }
    };
    let result = &results[place];
    let Some(times) = &result.times else {
        let why = "it has no times of individual runs; create it with `hyperfine --export-json`";
        return Err(Problem::Content(why.to_owned()));
    };
    let failed = |run: usize| {
        result
            .exit_codes
            .get(run)
            .is_some_and(|code| *code != Some(0))
    };
    let kept = times.iter().enumerate().filter(|(run, _)| !failed(*run));
    let values: Vec<f64> = kept.map(|(_, time)| *time).collect();
    Ok(NumberList {
        failed: (times.len() - values.len()) as u64,
        values,
        name: Some(result.command.clone()),
        unit: Unit::S,
        better: Better::Lower,
    })
}
