//! The files that are to be written while rows come: an option for each kind that `report` knows.

use std::path::{Path, PathBuf};

use crate::files::{HtmlFile, RowFormat};
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

/// Which kinds of files were asked for, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileArguments(Vec<(RowFormat, PathBuf)>);

impl FileArguments {
    /// Whether none was.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A page for a browser alone, where one was asked for.
    pub(crate) fn of_page(path: Option<&Path>) -> Self {
        let mut formats = RowFormat::all();
        let format = formats.find(|format| format.option() == HtmlFile::OPTION);
        let page = format.zip(path.map(Path::to_owned));
        Self(page.into_iter().collect())
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
