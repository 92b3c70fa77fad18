use super::CaseFile;

fn error(text: &str) -> (usize, String) {
    let error = CaseFile::parse("x.toml", text).unwrap_err();
    (error.line, error.why)
}

const HEAD: &str = "name = \"x\"\ntitle = \"\"\nsource = \"\"\nmechanism = \"\"\n";

#[test]
fn errors_are_reported_with_their_line() {
    let rows = |rows: &str| format!("[[series]]\nname = \"s\"\nunit = \"\"\nrows = [\n{rows}]\n");
    for (rest, line, what) in [
        ("colour = 1\n".to_owned(), 5, "colour"),
        (
            "[parameters.a]\nvalue = 1\nfit = [2, 1]\n".to_owned(),
            5,
            "for a fit, 2 to 1",
        ),
        (
            "[parameters.a]\nvalue = 3\nfit = [1, 2]\n".to_owned(),
            5,
            "choose 1 to 2",
        ),
        (
            "[parameters.a]\nvalue = 1\n".to_owned(),
            5,
            "its origin is missing",
        ),
        (
            "[parameters.a]\nvalue = 1\nfit = [1, 2]\n".to_owned(),
            5,
            "no row has `fit",
        ),
        (
            format!(
                "[parameters.a]\nvalue = 1\nfrom = \"x\"\ntry = [{}]\n",
                "1,".repeat(1_001)
            ),
            5,
            "too many values (1001)",
        ),
        (
            rows("{ at = \"1\", fit = true },\n"),
            9,
            "no number to fit to",
        ),
        (
            rows("{ at = \"1\", value = 1, range = [1, 2] },\n"),
            9,
            "not both",
        ),
        (rows("{ at = \"1\", range = [2, 1] },\n"), 9, "range 2 to 1"),
        (
            rows("{ at = \"1\", derived = \"3 +\" },\n"),
            9,
            "`3 +` is not a formula",
        ),
        (
            rows("{ at = \"1\", derived = \"1 / 0\" },\n"),
            9,
            "must be finite",
        ),
        (
            rows("{ at = \"1\" },\n{ at = \"1\" },\n"),
            9,
            "duplicate row",
        ),
        (
            rows("{ at = \"1\", value = 1, fit = true, identity = true },\n"),
            9,
            "give only one of `fit`",
        ),
        (
            rows("{ at = \"1\", value = 1, chosen = [\"a\"] },\n"),
            9,
            "no assumed parameter is called `a`",
        ),
        (rows(""), 6, "no rows"),
        (
            "[design]\nswitches = [\"a\"]\neffects = { e = [\"b\"] }\n".to_owned(),
            5,
            "unknown switch `b`",
        ),
    ] {
        let (at, why) = error(&format!("{HEAD}{rest}"));
        assert!(why.contains(what), "{rest}: {why}");
        assert_eq!(at, line, "{rest}: {why}");
    }
}

#[test]
fn numbers_must_be_finite() {
    let rows = |rows: &str| format!("[[series]]\nname = \"s\"\nunit = \"\"\nrows = [\n{rows}]\n");
    for (rest, line, what) in [
        (
            rows("{ at = \"1\", value = inf },\n"),
            9,
            "its value is inf",
        ),
        (
            rows("{ at = \"1\", tolerance = nan },\n"),
            9,
            "its tolerance is NaN",
        ),
        (
            format!("{}scale = nan\n", rows("{ at = \"1\" },\n")),
            6,
            "scale is NaN",
        ),
        (
            format!("{}tolerance = inf\n", rows("{ at = \"1\" },\n")),
            6,
            "tolerance is inf",
        ),
        (
            "[parameters.a]\nvalue = 1\nfrom = \"x\"\ntry = [1, nan]\n".to_owned(),
            5,
            "try: NaN",
        ),
    ] {
        let (at, why) = error(&format!("{HEAD}{rest}"));
        assert!(why.contains(what), "{rest}: {why}");
        assert_eq!(at, line, "{rest}: {why}");
    }
}

#[test]
fn formulas_are_computed() {
    let text = format!(
        "{HEAD}[[series]]\nname = \"s\"\nunit = \"\"\nrows = [\n\
         {{ at = \"a\", value = 34, derived = \"0.8 * 34 + 0.2 * 33\" }},\n\
         {{ at = \"b\", derived = [\"32\", \"sqrt(9) * 11\"] }},\n]\n"
    );
    let file = CaseFile::parse("x.toml", &text).unwrap();
    let row = file.row("s", "a").unwrap();
    assert!((row.middle().unwrap() - 33.8).abs() < 1e-12);
    assert_eq!(row.published(), Some([34.0, 34.0]));
    let row = file.row("s", "b").unwrap();
    assert_eq!(row.target(), Some([32.0, 33.0]));
    assert_eq!(row.residual(32.5), Some(0.0));
    assert_eq!(row.residual(34.0), Some(1.0));
    assert_eq!(row.residual(33.0 + 1e-14), Some(0.0));
}

#[test]
fn a_design_shows_which_settings_are_the_same() {
    let text = format!(
        "{HEAD}[design]\nswitches = [\"a\", \"b\", \"c\"]\n\
         effects = {{ ab = [\"a\", \"b\"], ac = [\"a\", \"c\"] }}\n"
    );
    let design = CaseFile::parse("x.toml", &text).unwrap().design.unwrap();
    let check = design.estimable();
    assert_eq!((check.arms, check.different), (8, 4));
    // The 6 effects are the three main effects and the three interactions of two switches.
    assert_eq!((check.effects, check.rank), (6, 3));
}

/// The published design has three switches, which its authors always set together.
#[test]
fn the_tcp_switches_make_four_arms() {
    let case = crate::cases::find("tcp-cpu-cost").unwrap();
    let file = CaseFile::parse("tcp-cpu-cost.toml", case.text()).unwrap();
    let check = file.design.unwrap().estimable();
    assert_eq!((check.arms, check.different, check.rank), (8, 4, 3));
    // Window scaling and timestamps have no effect while rfc1323 is off.
    let idle = check
        .idle
        .iter()
        .map(|idle| (idle.factor, idle.while_at.unwrap()));
    let idle: Vec<_> = idle
        .map(|(factor, off)| (factor, off.factor, off.value))
        .collect();
    assert_eq!(idle, [(1, 0, 0), (2, 0, 0)]);
}

/// The setting at the start decides which switches have an effect, and how many arms are reached.
/// The source's own comparison started with all switches on.
#[test]
fn only_the_baseline_with_all_switches_on_reaches_all_four_arms() {
    let case = crate::cases::find("tcp-cpu-cost").unwrap();
    let file = CaseFile::parse("tcp-cpu-cost.toml", case.text()).unwrap();
    let design = file.design.unwrap();
    let baselines = design.baselines();
    assert_eq!(baselines.len(), 8);
    // A second derivation: the machine that a setting gives.
    let machine = |on: &[&str]| {
        let has = |name| on.contains(&name);
        let rfc1323 = has("rfc1323");
        (rfc1323 && has("win_scale"), rfc1323 && has("timestamps"))
    };
    for baseline in &baselines {
        let start = machine(&baseline.on);
        let mut seen = vec![start];
        let mut changing = Vec::new();
        for name in ["rfc1323", "win_scale", "timestamps"] {
            let mut on = baseline.on.clone();
            if on.contains(&name) {
                on.retain(|other| *other != name);
            } else {
                on.push(name);
            }
            if machine(&on) != start {
                changing.push(name);
            }
            seen.push(machine(&on));
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((&baseline.changing, baseline.arms), (&changing, seen.len()));
    }
    let full: Vec<_> = baselines.iter().filter(|one| one.arms == 4).collect();
    assert_eq!(full.len(), 1);
    assert_eq!(full[0].on, ["rfc1323", "win_scale", "timestamps"]);
    assert_eq!(full[0].changing, full[0].on);
    assert!(baselines[0].on.is_empty() && baselines[0].changing.is_empty());
    // The report shows every baseline.
    let remarks = design.remarks();
    assert_eq!(remarks.len(), 9);
    assert!(remarks[1].topic.ends_with("all on"), "{remarks:#?}");
}
