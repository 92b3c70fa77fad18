use serde_json::Value;
use ticktax_model::case::CaseList;
use ticktax_model::comparison::Comparison;
use ticktax_model::document::{DOCUMENT_VERSION, DocumentKind};
use ticktax_model::recording::Header;

use super::{json, schema};
use crate::text::tests::{changes, comparisons, distributions, net_experiment, pace, trials};

/// Returns the schemas of everything written as JSON, including the header of recordings.
fn schemas() -> Vec<Value> {
    let documents = DocumentKind::ALL.iter().map(|&kind| schema(kind));
    documents
        .chain([schemars::schema_for!(Header).to_value()])
        .collect()
}

/// Calls `each` for every property of every type in a schema.
fn properties(schema: &Value, each: &mut dyn FnMut(&str, &Value)) {
    let types = schema["$defs"].as_object().into_iter().flatten();
    for part in types.map(|(_, part)| part).chain([schema]) {
        let alternatives = part["oneOf"].as_array().into_iter().flatten();
        for part in alternatives.chain([part]) {
            for (name, property) in part["properties"].as_object().into_iter().flatten() {
                each(name, property);
            }
        }
    }
}

#[test]
fn names_of_times_end_with_their_unit() {
    let mut times = 0;
    for schema in schemas() {
        properties(&schema, &mut |name, property| {
            if property.to_string().contains("#/$defs/Nanos\"") {
                times += 1;
                assert!(name.ends_with("_ns"), "{name} of {}", schema["title"]);
            }
        });
    }
    assert!(times > 150, "{times} times in all schemas");
}

#[test]
fn names_of_real_numbers_contain_their_unit() {
    const UNITS: [&str; 10] = [
        "_ns",
        "_hz",
        "_bps",
        "_ppm",
        "_nats",
        "_probability",
        "share",
        "fps",
        "cores",
        "_per_byte",
    ];
    // Fields whose numbers have no unit, or have their unit in another field.
    const WITHOUT: [&str; 37] = [
        "value",
        "interval",
        "confidence_interval",
        "plus_minus",
        "published",
        "derived",
        "modelled",
        "outcomes",
        "expected",
        "kernel",
        "residual",
        "allowed",
        "middle",
        "range",
        "fit_range",
        "misfit",
        "constants",
        "q",
        "quantile",
        "deviations",
        "events_per_period",
        "of",
        "tolerance",
        // Values in a comparison. Their unit depends on the metric, and their scale on the
        // comparison.
        "values",
        "resources",
        "mean",
        "median",
        "deviation",
        "min",
        "max",
        "low",
        "high",
        "error",
        "noise",
        "detectable",
        "bound",
        "change",
    ];
    for schema in schemas() {
        properties(&schema, &mut |name, property| {
            if property.to_string().contains("\"double\"") {
                let named = UNITS.iter().any(|unit| name.ends_with(unit));
                assert!(
                    named || WITHOUT.contains(&name),
                    "{name} of {}",
                    schema["title"]
                );
            }
        });
    }
}

#[test]
fn documents_name_their_type_as_their_schema_requires() {
    let text = json(&CaseList { cases: Vec::new() }.into());
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["document"], "cases");
    assert_eq!(json["version"], DOCUMENT_VERSION);
    assert_eq!(json["cases"], Value::Array(Vec::new()));
    for &kind in DocumentKind::ALL {
        let schema = schema(kind);
        assert_eq!(schema["properties"]["document"]["const"], kind.name());
        let required = schema["required"].as_array().unwrap();
        assert!(
            ["document", "version"]
                .iter()
                .all(|name| required.contains(&Value::from(*name)))
        );
    }
}

#[test]
fn comparisons_are_read_back() {
    for comparison in [
        changes::moved(),
        comparisons::loops_on_kernels(),
        comparisons::predicted(33.0),
        comparisons::sweep(),
        net_experiment::small_calls(),
        pace::compared_loops(),
        trials::lists(),
        distributions::histograms(),
        trials::two_arms(),
    ] {
        let text = json(&comparison.clone().into());
        let again: Comparison = serde_json::from_str(&text).unwrap();
        let kind = std::mem::discriminant(&comparison.experiment);
        assert_eq!(std::mem::discriminant(&again.experiment), kind);
        assert_eq!(again.arms.len(), comparison.arms.len());
        let verdicts = |of: &Comparison| -> Vec<_> {
            of.effects
                .iter()
                .map(|effect| (effect.arm, effect.contrast.differs()))
                .collect()
        };
        assert_eq!(verdicts(&again), verdicts(&comparison));
    }
}
