//! What a run of `exitless` printed, and how it ended.

use std::process::Output;

use serde_json::Value;

pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.out, self.err))
    }
}

pub(crate) fn said(output: &Output) -> Said {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said {
        status: output.status.code().expect("exitless was ended by a signal"),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}
