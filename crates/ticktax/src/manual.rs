//! What the command says about itself: man page, completions, schema.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::{Arguments, SchemaOf};

/// The man page, in roff, with every verb's options.
pub(crate) fn page() -> String {
    let mut roff = Vec::new();
    let command = Arguments::command();
    // Writing into memory does not fail.
    drop(clap_mangen::Man::new(command.clone()).render(&mut roff));
    for verb in command.get_subcommands() {
        let named = verb
            .clone()
            .display_name(format!("ticktax {}", verb.get_name()));
        let page = clap_mangen::Man::new(named);
        drop(page.render_name_section(&mut roff));
        drop(page.render_synopsis_section(&mut roff));
        drop(page.render_description_section(&mut roff));
        drop(page.render_options_section(&mut roff));
    }
    String::from_utf8_lossy(&roff).into_owned()
}

/// The completion script for `shell`.
pub(crate) fn completions(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "ticktax", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The JSON Schema of a statement.
pub(crate) fn schema(of: SchemaOf) -> String {
    let schema = match of {
        SchemaOf::Statement => ticktax_report::schema(),
        SchemaOf::Pace => ticktax_report::pace_schema(),
        SchemaOf::Case => ticktax_report::case_schema(),
        SchemaOf::Kernels => ticktax_report::kernels_schema(),
        SchemaOf::Sweep => ticktax_report::sweep_schema(),
        SchemaOf::Prediction => ticktax_report::prediction_schema(),
    };
    serde_json::to_string_pretty(&schema).unwrap_or_default()
}
