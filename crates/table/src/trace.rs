//! The format of the `traceHeader` attribute: an AWS X-Ray trace header, as EventBridge accepts it.

pub const MAX_TRACE_HEADER: usize = 500;

/// Whether a text is a trace header: `name=value` with semicolons in between, in printable ASCII, and among them a
/// `Root` of the form `1-<8 hexadecimal digits>-<24 hexadecimal digits>`.
pub fn is_trace_header(text: &str) -> bool {
    let printable = |text: &str| text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if text.len() > MAX_TRACE_HEADER || !printable(text) {
        return false;
    }
    let mut has_root = false;
    for part in text.split(';').map(str::trim_ascii).filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("Root", root)) => has_root = !has_root && is_root(root),
            Some((name, _)) if !name.is_empty() => {}
            _ => return false,
        }
    }
    has_root
}

fn is_root(text: &str) -> bool {
    let is_hex = |text: &str, digits| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let of_version_1 = text.strip_prefix("1-").and_then(|rest| rest.split_once('-'));
    of_version_1.is_some_and(|(time, unique)| is_hex(time, 8) && is_hex(unique, 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "Root=1-5759e988-bd862e3fe1be46a994272793";

    #[test]
    fn text_with_one_valid_root_is_a_trace_header() {
        let longest = format!("{ROOT};Lineage={}", "x".repeat(MAX_TRACE_HEADER - ROOT.len() - 9));
        for header in [
            ROOT,
            "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1",
            "Root=1-5759e988-bd862e3fe1be46a994272793; Parent=53995c3f42cd8ad8; Sampled=?",
            "Root=1-5759E988-BD862E3FE1BE46A994272793;Parent=53995c3f42cd8ad8;Sampled=0;Lineage=1:1b0cd6a3:0",
            "Self=1-67891234-12456789abcdef012345678;Root=1-67891233-abcdef012345678912345678;",
            &longest,
        ] {
            assert!(is_trace_header(header), "{header}");
        }
    }

    #[test]
    fn text_without_one_valid_root_is_not_a_trace_header() {
        let too_long = format!("{ROOT};Lineage={}", "x".repeat(MAX_TRACE_HEADER - ROOT.len() - 8));
        for text in [
            "",
            "Root=",
            "Root=1-5759e988",
            "Root=2-5759e988-bd862e3fe1be46a994272793",
            "Root=1-5759e98-bd862e3fe1be46a9942727934",
            "Root=1-5759e988-bd862e3fe1be46a99427279g",
            "Root=1-5759e988-bd862e3fe1be46a994272793-1",
            "Parent=53995c3f42cd8ad8;Sampled=1",
            "Root=1-5759e988-bd862e3fe1be46a994272793;Parent",
            "Root=1-5759e988-bd862e3fe1be46a994272793;=1",
            "Root=1-5759e988-bd862e3fe1be46a994272793;Root=1-5759e988-bd862e3fe1be46a994272793",
            "Root=1-5759e988-bd862e3fe1be46a994272793;a=\u{e9}",
            "Root=1-5759e988-bd862e3fe1be46a994272793;a=\n",
            &too_long,
        ] {
            assert!(!is_trace_header(text), "{text:?}");
        }
    }
}
