//! Checks that the lists of an enum's variants are complete.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Expr, ImplItem, Item, Type};

use crate::workspace::{read, shown, sources};

/// Checks that the constant `ALL` of an enum lists every variant exactly once, which the compiler
/// does not check.
#[test]
fn a_list_of_all_variants_is_whole() {
    let mut wrong = Vec::new();
    let mut lists = 0;
    for file in sources("rs") {
        let text = read(&file);
        if !text.contains("const ALL") {
            continue;
        }
        let Ok(parsed) = syn::parse_file(&text) else {
            wrong.push(format!("{} cannot be parsed", shown(&file)));
            continue;
        };
        let variants = enums(&parsed.items);
        for (name, listed) in all_lists(&parsed.items) {
            let Some(variants) = variants.get(&name) else {
                continue;
            };
            lists += 1;
            let once: BTreeSet<&String> = listed.iter().collect();
            if once.len() != listed.len() {
                wrong.push(format!("{}: {name}::ALL lists one twice", shown(&file)));
            }
            let missing = variants.iter().filter(|variant| !once.contains(variant));
            wrong.extend(
                missing.map(|variant| format!("{}: {name}::ALL lacks {variant}", shown(&file))),
            );
        }
    }
    assert!(lists > 10, "only {lists} lists were found");
    crate::report(&wrong);
}

/// Returns the names of each enum's variants.
fn enums(items: &[Item]) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for item in items {
        if let Item::Enum(item) = item {
            let variants = item.variants.iter();
            let variants = variants.map(|variant| variant.ident.to_string());
            found.insert(item.ident.to_string(), variants.collect());
        }
    }
    found
}

/// Returns the type's name and the contents of each `const ALL` in an `impl`.
fn all_lists(items: &[Item]) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for item in items {
        let Item::Impl(item) = item else { continue };
        let Type::Path(of) = &*item.self_ty else {
            continue;
        };
        let Some(name) = of.path.segments.last() else {
            continue;
        };
        for inner in &item.items {
            if let ImplItem::Const(constant) = inner
                && constant.ident == "ALL"
                && let Some(listed) = listed(&constant.expr)
            {
                found.push((name.ident.to_string(), listed));
            }
        }
    }
    found
}

/// Returns the variants in a list such as `[Self::A, Self::B { … }]`, or in a reference to one.
/// Returns `None` for other expressions.
fn listed(expr: &Expr) -> Option<Vec<String>> {
    match expr {
        Expr::Reference(reference) => listed(&reference.expr),
        Expr::Array(array) => {
            let names = array.elems.iter().map(|element| {
                let path = match element {
                    Expr::Path(it) => &it.path,
                    Expr::Struct(it) => &it.path,
                    Expr::Call(it) => match &*it.func {
                        Expr::Path(it) => &it.path,
                        _ => return None,
                    },
                    _ => return None,
                };
                Some(path.segments.last()?.ident.to_string())
            });
            names.collect()
        }
        _ => None,
    }
}
