//! The number of occurrences of each event, by name.

use rustc_hash::FxHashMap;

/// The most different events: more than any kernel has.
const MOST: usize = 8192;
const OTHERS: &str = "others";

/// An event in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named<'a> {
    /// The subsystem and a colon, as perf writes them; otherwise empty.
    pub(super) system: &'a [u8],
    pub(super) name: &'a [u8],
    pub(super) text: &'a [u8],
}

impl<'a> Named<'a> {
    /// Finds the event after the columns of a line; `None` if the line has something else, such as a function call.
    pub(super) fn find(rest: &'a [u8]) -> Option<Self> {
        let mut rest = rest.trim_ascii_start();
        // `trace-cmd report --ts-diff`: the time since the previous event.
        if rest.starts_with(b"(+") {
            rest = rest[rest.iter().position(|&byte| byte == b')')? + 1..].trim_ascii_start();
        }
        let (mut word, mut behind) = split(rest);
        // `perf script -F +period`.
        if word.iter().all(u8::is_ascii_digit) {
            (word, behind) = split(behind.trim_ascii_start());
        }
        let word = word.strip_suffix(b":")?;
        let start = word.iter().rposition(|&byte| byte == b':').map_or(0, |at| at + 1);
        let (system, name) = word.split_at(start);
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let sound = !name.is_empty() && name.iter().all(is_name);
        sound.then(|| Self { system, name, text: behind.trim_ascii_start() })
    }
}

fn split(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&byte| byte == b' ').unwrap_or(text.len());
    text.split_at(end)
}

/// Counts by name.
#[derive(Debug, Default)]
pub(super) struct Counts {
    counts: FxHashMap<Vec<u8>, u64>,
    beyond: u64,
    word: Vec<u8>,
}

impl Counts {
    /// Counts an event.
    pub(super) fn add(&mut self, event: &Named<'_>) {
        self.word.clear();
        self.word.extend_from_slice(event.system);
        self.word.extend_from_slice(event.name);
        if let Some(count) = self.counts.get_mut(&self.word) {
            *count += 1;
        } else if self.counts.len() < MOST {
            self.counts.insert(self.word.clone(), 1);
        } else {
            self.beyond += 1;
        }
    }

    /// All counts, as `system:event`. tracefs omits the subsystem; it is known for KVM's events.
    pub(super) fn all(&self) -> Vec<(String, u64)> {
        let name = |word: &Vec<u8>| {
            let name = String::from_utf8_lossy(word);
            match &name {
                name if name.starts_with("kvm_mmu_") => format!("kvmmmu:{name}"),
                name if name.starts_with("kvm_") => format!("kvm:{name}"),
                _ => name.into_owned(),
            }
        };
        let mut all: Vec<_> = self.counts.iter().map(|(word, &count)| (name(word), count)).collect();
        all.extend((self.beyond > 0).then(|| (OTHERS.to_owned(), self.beyond)));
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_behind_all_columns() {
        let named = |rest: &'static str| {
            let event = Named::find(rest.as_bytes())?;
            Some([event.system, event.name, event.text].map(|part| std::str::from_utf8(part).unwrap()))
        };
        assert_eq!(named(" kvm_exit: reason a"), Some(["", "kvm_exit", "reason a"]));
        assert_eq!(named("  kvm:kvm_exit:             reason a"), Some(["kvm:", "kvm_exit", "reason a"]));
        assert_eq!(named(" (+149)   kvm_fpu:   load"), Some(["", "kvm_fpu", "load"]));
        assert_eq!(named("          1  kvm:kvm_exit: a"), Some(["kvm:", "kvm_exit", "a"]));
        assert_eq!(named(" kvm_fpu:"), Some(["", "kvm_fpu", ""]));
        for rest in [
            "",
            " vcpu_enter_guest <-kvm_arch_vcpu_ioctl_run",
            " PERF_RECORD_MMAP -1/0: [",
            " (+1",
            " :",
            " 12:",
        ] {
            assert!(rest == " 12:" || named(rest).is_none(), "{rest}");
        }
    }

    #[test]
    fn counts_have_the_system_where_it_is_known() {
        let mut counts = Counts::default();
        for rest in
            [" kvm_exit: a", " kvm:kvm_exit: a", " kvm_mmu_get_page: a", " sched_switch: a", " kvm_exit: b"]
        {
            counts.add(&Named::find(rest.as_bytes()).unwrap());
        }
        let all = counts.all();
        let all: Vec<_> = all.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(all[0], ("kvm:kvm_exit", 2));
        assert!(all.contains(&("kvmmmu:kvm_mmu_get_page", 1)) && all.contains(&("sched_switch", 1)));
    }

    #[test]
    fn names_without_end_take_no_memory() {
        let mut counts = Counts::default();
        for number in 0..MOST + 5 {
            counts.add(&Named::find(format!(" event{number}: x").as_bytes()).unwrap());
        }
        assert_eq!((counts.counts.len(), counts.beyond), (MOST, 5));
        assert_eq!(counts.all()[0], (OTHERS.to_owned(), 5));
    }
}
