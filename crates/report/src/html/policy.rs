//! Content security policy of a page. It allows only the style and script that are part of the
//! page.

use sha2::{Digest, Sha256};

/// Returns the policy for a page with this style and, if given, this script. The browser then runs
/// and fetches nothing else.
pub(super) fn policy(style: &str, script: Option<&str>) -> String {
    let digest = |text: &str| base64(&Sha256::digest(text));
    let script = script.map(|script| format!("script-src 'sha256-{}'; ", digest(script)));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; {}img-src data:; base-uri 'none'; form-action 'none'",
        digest(style),
        script.unwrap_or_default()
    )
}

/// Encodes bytes in base64 with padding (RFC 4648).
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or_default());
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            let is_padding = digit > group.len();
            out.push(if is_padding {
                '='
            } else {
                char::from(DIGITS[value as usize])
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{base64, policy};

    #[test]
    fn base_64_matches_the_examples_of_rfc_4648() {
        for (text, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }

    /// The constant is the SHA-256 digest of the empty string in base64.
    #[test]
    fn the_policy_contains_the_digests_of_style_and_script() {
        let empty = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
        let (without, with) = (policy("", None), policy("", Some("")));
        assert!(
            without.contains(&format!("style-src 'sha256-{empty}'")) && !without.contains("script")
        );
        assert!(with.contains(&format!("script-src 'sha256-{empty}'")));
    }
}
