use serde_json::Value;
use ticktax_model::recording::Header;

/// The schemas of everything that is written as JSON, a recording's header included.
fn schemas() -> Vec<Value> {
    vec![
        super::schema(),
        super::pace_schema(),
        super::sweep_schema(),
        super::case_schema(),
        super::kernels_schema(),
        super::prediction_schema(),
        schemars::schema_for!(Header).to_value(),
    ]
}

/// Calls `each` with every property of every type in a schema.
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
fn a_time_is_named_with_its_unit() {
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
fn a_real_number_is_named_with_its_unit() {
    const UNITS: [&str; 7] = [
        "_ns",
        "_hz",
        "_ppm",
        "_probability",
        "share",
        "fps",
        "cores",
    ];
    // What a person reads beside a unit of its own, or what has none.
    const WITHOUT: [&str; 19] = [
        "value",
        "interval",
        "plus_minus",
        "published",
        "modelled",
        "expected",
        "kernel",
        "residual",
        "allowed",
        "middle",
        "range",
        "fit",
        "misfit",
        "constants",
        "q",
        "quantile",
        "deviations",
        "events_per_beat",
        "of",
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
