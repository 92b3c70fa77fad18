//! The profile written by `--profile-out FILE`. It appears under its name only once it is complete.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ticktax_model::SourceTable;
use ticktax_model::document::Document;
use ticktax_model::profile::Profile;
use ticktax_model::recording::{Row, RowSink};
use ticktax_report::RowsEnded;
use ticktax_store::disk::{Temporary, creation_words, error_words};

use super::{FileFormat, Finished, RowFile, RowFileError};

pub(crate) struct ProfileFormat;

/// Format of a profile, which the name of its file selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProfileKind {
    Folded,
    Pprof,
}

impl ProfileKind {
    fn from_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy();
        if name.ends_with(".folded") {
            Some(Self::Folded)
        } else if name.ends_with(".pb.gz") {
            Some(Self::Pprof)
        } else {
            None
        }
    }
}

impl FileFormat for ProfileFormat {
    fn option(&self) -> &'static str {
        "profile-out"
    }

    fn about(&self) -> &'static str {
        "Also write the profile to this file: folded stacks (.folded) or pprof (.pb.gz)"
    }

    fn create(&self, path: &Path) -> Result<Box<dyn RowFile>, RowFileError> {
        let kind = ProfileKind::from_path(path).ok_or_else(|| {
            RowFileError::new(format_args!(
                "unknown kind of profile {}: end its name with .folded (folded stacks) or .pb.gz \
                 (pprof)",
                path.display()
            ))
        })?;
        let temporary = Temporary::beside(path).map_err(|error| {
            let why = creation_words(path, &error);
            RowFileError::new(format_args!(
                "cannot create the profile {}: {why}",
                path.display()
            ))
        })?;
        Ok(Box::new(ProfileFile {
            path: path.to_owned(),
            kind,
            temporary,
        }))
    }
}

struct ProfileFile {
    path: PathBuf,
    kind: ProfileKind,
    temporary: Temporary,
}

impl RowSink for ProfileFile {
    /// The document contains the profile, so rows are not needed.
    fn row(&mut self, _: &SourceTable, _: &Row) {}
}

impl RowFile for ProfileFile {
    fn finish(self: Box<Self>, ended: &RowsEnded<'_>) -> Result<Finished, RowFileError> {
        let Self {
            path,
            kind,
            temporary,
        } = *self;
        let profile = profile_of(ended.document).ok_or_else(|| {
            RowFileError::new(format_args!(
                "cannot write the profile {}: the recording has no samples for one; record them \
                 as root with `ticktax audit --profile`",
                path.display()
            ))
        })?;
        let header = ended.header;
        let bytes = match kind {
            ProfileKind::Folded => Ok(ticktax_report::folded(profile).into_bytes()),
            ProfileKind::Pprof => {
                let begin = header.begin().unwrap_or_default();
                let length = header.end() - begin;
                ticktax_report::pprof(profile, header.began_unix, length)
            }
        };
        let write = |bytes: Vec<u8>| -> io::Result<()> {
            temporary.handle()?.write_all(&bytes)?;
            temporary.appear()
        };
        bytes.and_then(write).map_err(|error| {
            let why = error_words(&error);
            RowFileError::new(format_args!(
                "cannot write the profile {}: {why}",
                path.display()
            ))
        })?;
        let hint = match kind {
            ProfileKind::Folded => "draw it with flamegraph.pl or https://www.speedscope.app",
            ProfileKind::Pprof => "open it with `go tool pprof -http=: FILE`",
        };
        Ok(Finished {
            note: format!("Profiled to {}; {hint}.", path.display()),
            warning: None,
        })
    }
}

fn profile_of(document: &Document) -> Option<&Profile> {
    match document {
        Document::Statement(statement) => statement.profile.as_ref(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{FileFormat, ProfileFormat, ProfileKind};

    #[test]
    fn the_name_selects_the_format() {
        let kind = |path: &str| ProfileKind::from_path(Path::new(path));
        assert_eq!(kind("a/b.folded"), Some(ProfileKind::Folded));
        assert_eq!(kind("b.pb.gz"), Some(ProfileKind::Pprof));
        assert_eq!(kind("b.svg"), None);
        let error = ProfileFormat.create(Path::new("b.svg")).err().unwrap();
        let error = error.to_string();
        assert!(
            error.contains(".folded") && error.contains(".pb.gz"),
            "{error}"
        );
    }
}
