//! The kernel's names for packet drop reasons. Their numbers differ between kernel versions, so
//! they are read from `enum skb_drop_reason` in the kernel's BTF (`Documentation/bpf/btf.rst`).
//!
//! aya parses BTF too, but does not expose it. btf-rs does, but it is under the LGPL, and ticktax
//! is linked statically. Other crates do not support `BTF_KIND_ENUM64`.

use std::collections::BTreeMap;

const MAGIC: u16 = 0xeb9f;
const ENUM: &str = "skb_drop_reason";
/// Prefix of the enum members' names.
const PREFIX: &str = "SKB_DROP_REASON_";

const KIND_ENUM: u32 = 6;

/// Names of the drop reasons, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reasons(BTreeMap<u32, String>);

impl Reasons {
    /// Reads the drop reasons from a kernel's BTF. Returns `None` if the BTF is invalid or contains
    /// no reasons.
    pub(super) fn read(btf: &[u8]) -> Option<Self> {
        let sections = Sections::parse(btf)?;
        let mut types = sections.types;
        while !types.is_empty() {
            let [name, info, _] = [word(types, 0)?, word(types, 4)?, word(types, 8)?];
            let (kind, members) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let length = length(kind, members)?;
            let rest = types.get(12..12 + length)?;
            if kind == KIND_ENUM && sections.string(name) == Some(ENUM) {
                let members = rest.chunks_exact(8).filter_map(|member| {
                    let name = sections.string(word(member, 0)?)?;
                    Some((word(member, 4)?, name.strip_prefix(PREFIX)?.to_owned()))
                });
                return Some(Self(members.collect()));
            }
            types = types.get(12 + length..)?;
        }
        None
    }

    /// Returns the name of `reason`, or its number if it has no name: the core kernel's enum does
    /// not include the reasons of subsystems.
    pub(super) fn name(&self, reason: u32) -> String {
        if let Some(name) = self.0.get(&reason) {
            return name.clone();
        }
        match (reason >> 16, reason & 0xffff) {
            (0, reason) => format!("reason {reason}"),
            (subsystem, reason) => format!("reason {reason} of subsystem {subsystem}"),
        }
    }
}

/// The two sections of BTF data.
struct Sections<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

impl<'a> Sections<'a> {
    fn parse(btf: &'a [u8]) -> Option<Self> {
        let magic = u16::from_ne_bytes(btf.get(..2)?.try_into().ok()?);
        let header = word(btf, 4)?;
        let part = |offset: usize| {
            let from = header.checked_add(word(btf, offset)?)?;
            let to = from.checked_add(word(btf, offset + 4)?)?;
            btf.get(from as usize..to as usize)
        };
        (magic == MAGIC).then_some(())?;
        Some(Self {
            types: part(8)?,
            strings: part(16)?,
        })
    }

    fn string(&self, offset: u32) -> Option<&'a str> {
        let text = self.strings.get(offset as usize..)?;
        let end = text.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&text[..end]).ok()
    }
}

/// Returns how many bytes follow the three words that every type starts with, or `None` if the kind
/// is unknown.
fn length(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // INT, VAR, DECL_TAG
        1 | 14 | 17 => 4,
        // PTR, FWD, TYPEDEF, VOLATILE, CONST, RESTRICT, FUNC, FLOAT, TYPE_TAG
        2 | 7..=12 | 16 | 18 => 0,
        // ARRAY
        3 => 12,
        // STRUCT, UNION, DATASEC, ENUM64
        4 | 5 | 15 | 19 => 12 * members,
        // ENUM, FUNC_PROTO
        KIND_ENUM | 13 => 8 * members,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{KIND_ENUM, MAGIC, Reasons};

    /// Creates BTF that contains a struct with one member, and an enum called `name` with these
    /// members and values.
    fn btf(name: &str, members: &[(&str, u32)]) -> Vec<u8> {
        let mut strings = vec![0];
        let mut string = |text: &str| {
            let at = u32::try_from(strings.len()).unwrap();
            strings.extend(text.bytes().chain([0]));
            at
        };
        let count = u32::try_from(members.len()).unwrap();
        let mut words = vec![string("sk_buff"), 4 << 24 | 1, 8, string("head"), 1, 0];
        words.extend([string(name), KIND_ENUM << 24 | count, 4]);
        for (name, value) in members {
            words.extend([string(name), *value]);
        }
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut all = MAGIC.to_ne_bytes().to_vec();
        all.extend([1, 0]);
        let (types_len, strings_len) = (types.len(), strings.len());
        for word in [24, 0, types_len, types_len, strings_len] {
            all.extend(u32::try_from(word).unwrap().to_ne_bytes());
        }
        all.extend(types);
        all.extend(strings);
        all
    }

    #[test]
    fn reasons_are_named_after_their_members() {
        let members = [
            ("SKB_NOT_DROPPED_YET", 0),
            ("SKB_DROP_REASON_NOT_SPECIFIED", 2),
            ("SKB_DROP_REASON_SOCKET_RCVBUFF", 6),
        ];
        let reasons = Reasons::read(&btf("skb_drop_reason", &members)).unwrap();
        assert_eq!(reasons.name(6), "SOCKET_RCVBUFF");
        assert_eq!(reasons.name(0), "reason 0");
        assert_eq!(reasons.name(0x0003_0001), "reason 1 of subsystem 3");
        assert_eq!(Reasons::read(&btf("another", &members)), None);
    }

    #[test]
    fn truncated_or_invalid_btf_has_no_reasons() {
        let btf = btf("skb_drop_reason", &[("SKB_DROP_REASON_NO_SOCKET", 3)]);
        assert!(Reasons::read(&btf).is_some());
        for end in 0..btf.len() {
            assert_eq!(Reasons::read(&btf[..end]), None, "{end}");
        }
        let mut unknown_kind = btf.clone();
        unknown_kind[24 + 7] = 0x1f;
        assert_eq!(Reasons::read(&unknown_kind), None);
    }

    #[test]
    fn the_running_kernel_has_reasons() {
        let Ok(btf) = fs::read("/sys/kernel/btf/vmlinux") else {
            return;
        };
        // Every kernel that has the enum (since 5.17) has this member.
        let member = b"SKB_DROP_REASON_NO_SOCKET\0";
        if btf.windows(member.len()).any(|bytes| bytes == member) {
            let reasons = Reasons::read(&btf).unwrap();
            assert!(reasons.0.values().any(|name| name == "NO_SOCKET"));
        }
    }
}
