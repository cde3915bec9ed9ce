//! Bodies of any size that are expensive to read.

/// A kind of body, and the memory that a request with it may use.
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// A body of about this number of bytes.
    pub(crate) body: fn(usize) -> String,
    /// The bytes in use at once for each byte of the body. An array of two bytes is a `serde_json::Value` with space for four
    /// elements of 32 bytes, so a body of arrays needs most: 288 MB for the 4 MB of the largest body. The function has 512 MB.
    pub(crate) peak_per_byte: usize,
    /// The allocations for each kilobyte of the body.
    pub(crate) allocations_per_kilobyte: usize,
}

pub(crate) const SHAPES: [Shape; 14] = [
    Shape {
        name: "many commands",
        body: |size| batch(size, r#"{"command":"Read"}"#),
        peak_per_byte: 8,
        allocations_per_kilobyte: 1000,
    },
    Shape {
        name: "many commands with an event",
        body: |size| batch(size, r#"{"command":"Note","data":{"value":1}}"#),
        peak_per_byte: 8,
        allocations_per_kilobyte: 1100,
    },
    Shape {
        name: "many commands that do not exist",
        body: |size| batch(size, r#"{"command":"X"}"#),
        peak_per_byte: 8,
        allocations_per_kilobyte: 620,
    },
    Shape {
        name: "the name of a command",
        body: |size| format!(r#"{{"command":"{}"}}"#, "x".repeat(size)),
        peak_per_byte: 13,
        allocations_per_kilobyte: 0,
    },
    Shape {
        name: "arrays 90 deep",
        body: |size| note(&list(size, &format!("{}{}", "[".repeat(90), "]".repeat(90)))),
        peak_per_byte: 72,
        allocations_per_kilobyte: 2200,
    },
    Shape {
        name: "objects 90 deep with long names",
        body: |size| {
            let name = "x".repeat(size / 90);
            note(&(0..90).fold("1".to_owned(), |value, n| format!(r#"{{"{n}{name}":{value}}}"#)))
        },
        peak_per_byte: 23,
        allocations_per_kilobyte: 0,
    },
    Shape {
        name: "a long name",
        body: |size| note(&format!(r#"{{"{}":1}}"#, "x".repeat(size))),
        peak_per_byte: 23,
        allocations_per_kilobyte: 0,
    },
    Shape {
        name: "a long unknown name",
        body: |size| format!(r#"{{"command":"Read","data":{{"{}":1}}}}"#, "x".repeat(size)),
        peak_per_byte: 15,
        allocations_per_kilobyte: 0,
    },
    Shape {
        name: "many names",
        body: |size| {
            let members: Vec<_> = (0..size / 10).map(|n| format!(r#""{n:05x}":1"#)).collect();
            note(&format!("{{{}}}", members.join(",")))
        },
        peak_per_byte: 24,
        allocations_per_kilobyte: 1650,
    },
    Shape { name: "numbers", body: |size| note(&list(size, "1")), peak_per_byte: 31, allocations_per_kilobyte: 0 },
    Shape {
        name: "empty strings",
        body: |size| note(&list(size, r#""""#)),
        peak_per_byte: 31,
        allocations_per_kilobyte: 380,
    },
    Shape {
        name: "a long string",
        body: |size| note(&format!(r#""{}""#, "x".repeat(size))),
        peak_per_byte: 23,
        allocations_per_kilobyte: 0,
    },
    Shape {
        name: "escapes",
        body: |size| note(&format!(r#""{}""#, r#"\\\"\n\u0001"#.repeat(size / 12))),
        peak_per_byte: 26,
        allocations_per_kilobyte: 0,
    },
    Shape {
        name: "escaped characters of four bytes",
        body: |size| note(&format!(r#""{}""#, r"\ud83e\udd80".repeat(size / 12))),
        peak_per_byte: 9,
        allocations_per_kilobyte: 0,
    },
];

/// One command with a value.
fn note(value: &str) -> String {
    format!(r#"{{"command":"Note","data":{{"value":{value}}}}}"#)
}

fn batch(size: usize, command: &str) -> String {
    list(size, command)
}

/// An array that repeats the element.
fn list(size: usize, element: &str) -> String {
    format!("[{}]", vec![element; size / (element.len() + 1)].join(","))
}
