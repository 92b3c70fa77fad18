//! Sysctls of a network namespace. `/proc/sys/net` is that of the namespace of whoever looks: what is not there in a
//! new one, or may not be written there, is the whole machine's.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::super::error::{NetError, reason};

/// Why a sysctl cannot be set in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SysctlError {
    /// No kernel has such a name.
    #[error("`{name}` is no name of a sysctl below net")]
    Name {
        /// As it was asked for.
        name: String,
    },
    /// This kernel does not have it.
    #[error("there is no sysctl {name} here: check its name, and whether its module is loaded")]
    Absent {
        /// Its name.
        name: String,
    },
    /// It is not a namespace's own.
    #[error(
        "{name} is the whole machine's, not a network namespace's, and is left alone: try it with `ticktax try`"
    )]
    Shared {
        /// Its name.
        name: String,
    },
    /// The kernel does not take the value.
    #[error("{name} does not take `{value}`: {why}")]
    Refused {
        /// Its name.
        name: String,
        /// What it was to be.
        value: String,
        /// The kernel's reason.
        why: String,
    },
}

/// Where a sysctl is, by its name: dots, or slashes where a device's name has dots.
fn path(name: &str) -> Result<PathBuf, SysctlError> {
    let wrong = || SysctlError::Name {
        name: name.to_owned(),
    };
    let rest = name.strip_prefix("net.").ok_or_else(wrong)?;
    let parts: Vec<&str> = rest.split('.').collect();
    let is_part = |part: &&str| {
        let known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        !part.is_empty() && part.chars().all(known)
    };
    if !parts.iter().all(is_part) {
        return Err(wrong());
    }
    let mut path = PathBuf::from("/proc/sys/net");
    path.extend(parts);
    Ok(path)
}

/// Whether the calling thread's namespace has it.
///
/// # Errors
/// It is no such name.
pub fn has_sysctl(name: &str) -> Result<bool, SysctlError> {
    Ok(path(name)?.is_file())
}

/// Sets it in the namespace of the calling thread: what it then is.
pub(super) fn set(name: &str, value: &str) -> Result<String, NetError> {
    Ok(set_at(name, value)?)
}

fn set_at(name: &str, value: &str) -> Result<String, SysctlError> {
    let path = path(name)?;
    let refused = |error: &io::Error| match error.kind() {
        ErrorKind::NotFound => SysctlError::Absent {
            name: name.to_owned(),
        },
        // What is not the namespace's own may be read there by all, and written by nobody.
        ErrorKind::PermissionDenied => SysctlError::Shared {
            name: name.to_owned(),
        },
        _ => SysctlError::Refused {
            name: name.to_owned(),
            value: value.to_owned(),
            why: reason(error),
        },
    };
    fs::write(&path, value).map_err(|error| refused(&error))?;
    let read = fs::read_to_string(&path).map_err(|error| refused(&error))?;
    let read = words(&read);
    if read == words(value) {
        return Ok(read);
    }
    Err(SysctlError::Refused {
        name: name.to_owned(),
        value: value.to_owned(),
        why: format!("it then is `{read}`"),
    })
}

/// Numbers with one space between them.
fn words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{SysctlError, path, words};

    #[test]
    fn a_name_leads_nowhere_but_below_net() {
        let there = path("net.ipv4.conf.all.rp_filter").unwrap();
        let there = there.to_str().unwrap();
        assert_eq!(there, "/proc/sys/net/ipv4/conf/all/rp_filter");
        for wrong in [
            "",
            "net",
            "net.",
            "net..x",
            "kernel.x",
            "net.a/b",
            "net.../..",
        ] {
            let error = path(wrong).unwrap_err();
            assert!(
                matches!(error, SysctlError::Name { .. }),
                "{wrong}: {error}"
            );
        }
    }

    #[test]
    fn lists_are_read_back_as_they_were_typed() {
        assert_eq!(words("4096\t131072\t6291456\n"), "4096 131072 6291456");
    }
}
