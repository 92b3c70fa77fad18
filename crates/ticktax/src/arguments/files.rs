//! Options for the files that are written while rows arrive. There is one option for each format
//! registered in [`crate::files`].

use std::path::{Path, PathBuf};

use crate::files::{HtmlFile, RowFormat};
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

/// Short help of `--html`, the same for every verb.
pub(super) const HTML: &str = "Also write the report as HTML to this file";

/// Short help of `--save` for verbs that write several formats.
const SAVE: &str = "Save a recording for `report` and `beats`";

/// The files that the user asked for, with their formats.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileArguments(Vec<(RowFormat, PathBuf)>);

impl FileArguments {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Also asks for a profile at `path`, if it is given.
    pub(crate) fn and_profile(&self, path: Option<&Path>) -> Self {
        let profile = path.map(|path| (RowFormat::PROFILE, path.to_owned()));
        Self(self.0.iter().cloned().chain(profile).collect())
    }

    /// Asks for an HTML page at `path` and no other file. If `path` is `None`, asks for no file at
    /// all.
    pub(crate) fn of_page(path: Option<&Path>) -> Self {
        let mut formats = RowFormat::all();
        let format = formats.find(|format| format.option() == HtmlFile::OPTION);
        let page = format.zip(path.map(Path::to_owned));
        Self(page.into_iter().collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(RowFormat, PathBuf)> {
        self.0.iter()
    }
}

impl FromArgMatches for FileArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let named = RowFormat::all().filter_map(|format| {
            let path = matches.get_one::<PathBuf>(format.option())?;
            Some((format, path.clone()))
        });
        Ok(Self(named.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for FileArguments {
    fn augment_args(command: Command) -> Command {
        command.args(RowFormat::all().map(|format| {
            Arg::new(format.option())
                .long(format.option())
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help(match format.option() {
                    HtmlFile::OPTION => HTML,
                    "save" => SAVE,
                    _ => format.about(),
                })
                .long_help(format.about())
                .hide_short_help(!matches!(format.option(), "save" | HtmlFile::OPTION))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
