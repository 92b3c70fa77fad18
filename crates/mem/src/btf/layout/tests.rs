use proptest::prelude::*;

use super::parse;
use crate::btf::Field;

/// The example that the documentation uses.
const VNODE: &str = include_str!("../../../../../contrib/layouts/every-30.999-seconds.h");

#[test]
fn the_shipped_layout_has_the_published_offsets_and_lines() {
    let types = parse(VNODE).unwrap();
    let item = types.structure("item").unwrap();
    let touched = [
        ("vp.at_90", 0x90),
        ("vp.at_1c", 0x1c),
        ("vp.at_24", 0x24),
        ("vp.at_a8", 0xa8),
        ("vp.at_a0", 0xa0),
        ("ip.at_18", 0x118),
        ("vp.at_48", 0x48),
    ];
    let mut lines = std::collections::BTreeSet::new();
    for (path, offset) in touched {
        let field = types.field(&item, path).unwrap();
        assert_eq!(field.offset, offset, "{path}");
        lines.insert(offset / 64);
    }
    assert_eq!(lines.len(), 4);
}

#[test]
fn offsets_follow_the_rules_of_c_unless_they_are_given() {
    let text = "
        pointer 4;
        union value { u64 wide; char text[5]; };  // 8 bytes
        struct item {
            unsigned char state;
            struct unknown *next, *last[2];
            union value value; /* at 16 */
            unsigned long long when @ 0x20;
            struct { short a; int b; };
            enum mode mode;
            volatile unsigned flags;
        } size 0x40;
        struct pair { struct item one, two; };";
    let types = parse(text).unwrap();
    let item = types.structure("item").unwrap();
    assert_eq!(
        (item.size, &*item.holes),
        (64, &[(1, 3), (24, 8), (56, 8)][..])
    );
    for (path, offset, size) in [
        ("state", 0, 1),
        ("next", 4, 4),
        ("last", 8, 8),
        ("value.text", 16, 5),
        ("when", 32, 8),
        ("a", 40, 2),
        ("b", 44, 4),
        ("mode", 48, 4),
        ("flags", 52, 4),
    ] {
        assert_eq!(
            types.field(&item, path).unwrap(),
            Field { offset, size },
            "{path}"
        );
    }
    let pair = types.structure("pair").unwrap();
    assert_eq!(types.field(&pair, "two.when").unwrap().offset, 96);
    let wide = parse("struct s { char c; void *p; long l; };").unwrap();
    assert_eq!(wide.structure("s").unwrap().size, 24);
}

#[test]
fn invalid_files_are_refused_with_the_line_and_a_remedy() {
    for (text, error) in [
        ("", "line 1: the file defines no structure: add one"),
        (
            "struct s {\n u32 a\n u32 b;\n};",
            "line 3: found `u32`, expected `;`",
        ),
        (
            "struct s {\n u32 a;\n",
            "line 2: found the end of the file, expected the type",
        ),
        (
            "struct s { u32 a; }",
            "line 1: found the end of the file, expected `;`",
        ),
        (
            "\n\nstruct s { foo_t a; };",
            "line 3: unknown type `foo_t`: define it above",
        ),
        (
            "struct s { u32 a @ 8;\nu32 b @ 10; };",
            "line 2: `b` at 0xa overlaps the field before",
        ),
        (
            "struct s { u64 a; } size 4;",
            "line 1: a size of 4 is too small: the fields end at 0x8",
        ),
        (
            "struct s { };",
            "line 1: a structure must have 1 byte to 256 MiB",
        ),
        (
            "struct s { u8 a[4][0x40000000]; };",
            "line 1: a structure must have",
        ),
        (
            "struct s { u8 a @ 0xffffffffffffffff; };",
            "line 1: a structure must have",
        ),
        (
            "struct s { u32 a : 3; };",
            "line 1: `a` is a bit-field: declare",
        ),
        (
            "struct s { u32 a @ 0x1g; };",
            "line 1: invalid number `0x1g`: write it as",
        ),
        (
            "struct s { u32 a = 1; };",
            "line 1: unexpected character `=`",
        ),
        (
            "struct s { u32; };",
            "line 1: found `;`, expected the name of a field",
        ),
        ("/* a\n b", "line 1: the comment does not end: add `*/`"),
        (
            "pointer 2;",
            "line 1: invalid pointer size 2: choose 4 or 8",
        ),
        (
            "struct s { u8 a; };\nstruct s { u8 a; };",
            "line 2: `s` is already defined",
        ),
        (
            "typedef int x;",
            "line 1: found `typedef`, expected `struct`",
        ),
    ] {
        let found = parse(text).unwrap_err().to_string();
        assert!(found.starts_with(error), "{text:?}: {found}");
        assert!(!found.contains('\n'), "{found}");
    }
    let nested = "struct { ".repeat(40);
    let error = parse(&format!("struct s {{ {nested}")).unwrap_err();
    assert!(
        error.to_string().contains("too many nested structures"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn damaged_files_never_panic(
        changes in prop::collection::vec((0_usize..2000, any::<char>()), 1..6), cut in 0_usize..2000
    ) {
        let mut text: Vec<char> = VNODE.chars().collect();
        for (place, value) in changes {
            let place = place % text.len();
            text[place] = value;
        }
        text.truncate(text.len() - cut % text.len());
        let text: String = text.into_iter().collect();
        if let Ok(types) = parse(&text) && let Ok(item) = types.structure("item") {
            let _ = types.field(&item, "vp.at_1c");
        }
    }
}
