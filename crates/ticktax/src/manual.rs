//! What the command says about itself: man page, completions, schema.

use clap::CommandFactory;
use clap_complete::Shell;
use ticktax_model::document::DocumentKind;

use crate::arguments::Arguments;

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

/// The JSON Schema of a document.
pub(crate) fn schema(of: DocumentKind) -> String {
    serde_json::to_string_pretty(&ticktax_report::schema(of)).unwrap_or_default()
}
