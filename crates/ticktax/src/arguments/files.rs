//! The files that rows are to be written to: an option for each kind that `report` knows.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use ticktax_report::RowFormat;

/// Which kinds of files were asked for, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileArguments(Vec<(RowFormat, PathBuf)>);

impl FileArguments {
    /// Whether none was.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each.
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
                .help(format.about())
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
