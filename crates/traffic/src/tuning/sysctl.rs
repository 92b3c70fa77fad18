//! Sysctls of a network namespace. `/proc/sys/net` shows the sysctls that belong to the reading
//! thread's namespace. A sysctl that is missing or read-only in a new namespace applies to the
//! whole machine.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use super::super::error::{NetError, reason};

/// Why a sysctl cannot be set in a network namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SysctlError {
    /// The name does not belong to a network sysctl, because it does not start with `net.`.
    #[error("`{name}` is not a network sysctl: give a name that starts with net.")]
    Name {
        /// The requested name.
        name: String,
    },
    /// The kernel does not have this sysctl.
    #[error("no sysctl {name}: check the name, and whether its kernel module is loaded")]
    Absent {
        /// Name of the sysctl.
        name: String,
    },
    /// The sysctl applies to the whole machine, not to a network namespace.
    #[error(
        "{name} applies to the whole machine, not to a network namespace, and was not changed: use \
         `ticktax try`"
    )]
    Shared {
        /// Name of the sysctl.
        name: String,
    },
    /// The kernel refuses the value.
    #[error("cannot set {name} to `{value}`: {why}")]
    Refused {
        /// Name of the sysctl.
        name: String,
        /// The requested value.
        value: String,
        /// The kernel's reason.
        why: String,
    },
}

/// Converts a dotted sysctl name to a path.
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

/// Returns whether the sysctl exists in the calling thread's namespace.
///
/// # Errors
/// Returns an error if the name is invalid.
pub fn has_sysctl(name: &str) -> Result<bool, SysctlError> {
    Ok(path(name)?.is_file())
}

/// Sets a sysctl in the calling thread's namespace, and returns the value read back.
pub(super) fn set(name: &str, value: &str) -> Result<String, NetError> {
    Ok(set_at(name, value)?)
}

fn set_at(name: &str, value: &str) -> Result<String, SysctlError> {
    let path = path(name)?;
    let refused = |error: &io::Error| match error.kind() {
        ErrorKind::NotFound => SysctlError::Absent {
            name: name.to_owned(),
        },
        // In a new namespace, sysctls that apply to the whole machine can be read but not written.
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
        why: format!("the kernel changed it to `{read}`"),
    })
}

/// Replaces each run of whitespace with a single space.
fn words(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::{SysctlError, path, words};

    #[test]
    fn names_only_lead_to_paths_below_net() {
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
    fn lists_of_numbers_compare_equal_to_the_input() {
        assert_eq!(words("4096\t131072\t6291456\n"), "4096 131072 6291456");
    }
}
