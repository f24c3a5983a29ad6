//! The amount of work of a run, so that costs can be given for each unit of it.

/// The unit of a tool's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkUnit {
    /// An event of sysbench.
    Event,
    /// A read or write.
    Operation,
    /// An answered request.
    Request,
    /// A delivered message.
    Message,
    /// A request of netperf and its answer.
    Transaction,
    /// 1,048,576 bytes that were read, written or received.
    Mebibyte,
}

/// The prefix of the metrics of work.
const WORK: &str = "work.";

impl WorkUnit {
    /// All units.
    pub const ALL: [Self; 6] =
        [Self::Event, Self::Operation, Self::Request, Self::Message, Self::Transaction, Self::Mebibyte];

    /// The singular, as in metrics for each unit: `exits-per-event.total`.
    pub(crate) fn singular(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Operation => "operation",
            Self::Request => "request",
            Self::Message => "message",
            Self::Transaction => "transaction",
            Self::Mebibyte => "mebibyte",
        }
    }

    /// The plural: "events".
    pub fn plural(self) -> String {
        match self {
            Self::Mebibyte => "MiB".to_owned(),
            other => format!("{}s", other.singular()),
        }
    }

    /// The singular with its article: "an event", "a MiB".
    pub fn each(self) -> &'static str {
        match self {
            Self::Event => "an event",
            Self::Operation => "an operation",
            Self::Request => "a request",
            Self::Message => "a message",
            Self::Transaction => "a transaction",
            Self::Mebibyte => "a MiB",
        }
    }

    /// The metric of the amount of work of a guest: `work.events`.
    pub fn metric(self) -> String {
        format!("{WORK}{}s", self.singular())
    }

    /// The unit of a metric of the amount of work.
    pub fn of_metric(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.metric() == name)
    }

    /// The unit of this name, as from [`Self::singular`].
    pub(crate) fn of_singular(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.singular() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::NotUnderstood;
    use super::super::testing::{fixture, loaded, outputs, plan};
    use super::*;
    use load::Protocol;

    /// The figure of the work in a tool's output.
    fn work(settings: &str, printed: &str) -> Result<(String, f64), NotUnderstood> {
        let plan = plan(settings);
        let metrics = plan.parse(&outputs(&plan, printed))?;
        let mut work = metrics.into_iter().filter(|metric| WorkUnit::of_metric(&metric.name).is_some());
        let one = work.next().unwrap();
        assert!(work.next().is_none());
        assert!(plan.metrics().iter().any(|described| described.covers(&one.name)), "{}", one.name);
        Ok((one.name, one.value))
    }

    #[test]
    fn names_are_found_again() {
        for unit in WorkUnit::ALL {
            assert_eq!(WorkUnit::of_metric(&unit.metric()), Some(unit));
            assert_eq!(WorkUnit::of_singular(unit.singular()), Some(unit));
        }
        assert_eq!(WorkUnit::of_metric("work.events.more"), None);
    }

    #[test]
    fn each_tool_tells_how_much_it_did() {
        let mebibyte = 1_048_576.0;
        let netperf = |test: &str, more: &str| format!("tool = \"netperf\"\ntest = {test:?}\n{more}");
        let http = |generator: &str, more: &str| {
            format!("tool = \"http\"\ngenerator = {generator:?}\nduration = \"1s\"\n{more}")
        };
        let iozone =
            |more: &str| format!("tool = \"iozone\"\nfile_size = \"4M\"\nrecord_size = \"64K\"\n{more}");
        let cases = [
            (
                "tool = \"sysbench\"\ntest = \"threads\"".to_owned(),
                fixture("sysbench-threads.out"),
                "work.events",
                112.0,
            ),
            (
                "tool = \"fio\"\npattern = \"random-read-write\"".to_owned(),
                fixture("fio-random-read-write.json"),
                "work.operations",
                fio_operations(),
            ),
            (http("wrk", ""), fixture("wrk.out"), "work.requests", wrk_requests()),
            (http("ab", ""), fixture("ab.out"), "work.requests", 7689.0),
            (http("exitless", "rate = 100"), loaded(Protocol::Http), "work.requests", 980.0),
            (
                "tool = \"mqtt\"\nconnections = 11\nrate = 100\nduration = \"10s\"".to_owned(),
                loaded(Protocol::Mqtt),
                "work.messages",
                980.0,
            ),
            // IOzone runs both tests of a pair if one is requested.
            (iozone("tests = [\"random-read\"]"), fixture("iozone-direct.out"), "work.mebibytes", 8.0),
        ];
        for (settings, printed, name, amount) in cases {
            let (found, value) =
                work(&settings, &printed).unwrap_or_else(|error| panic!("{settings}: {error}"));
            assert_eq!(found, name);
            assert!((value - amount).abs() < 1e-6, "{settings}: {value} instead of {amount}");
        }
        for (test, factor) in [("tcp-rr", 1.0), ("tcp-stream", 1e6 / 8.0 / mebibyte)] {
            let printed = fixture(&format!("netperf-{test}-omni.out"));
            let key = |name: &str| {
                let line = printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
                line.unwrap().trim().parse::<f64>().unwrap()
            };
            let (name, value) = work(&netperf(test, "cpu = true"), &printed).unwrap();
            assert_eq!(name, if test == "tcp-rr" { "work.transactions" } else { "work.mebibytes" });
            let expected = key("THROUGHPUT") * key("ELAPSED_TIME") * factor;
            assert!((value - expected).abs() < expected * 1e-9, "{value} instead of {expected}");
        }
    }

    fn fio_operations() -> f64 {
        let printed = fixture("fio-random-read-write.json");
        let document: serde_json::Value =
            serde_json::from_str(&printed[printed.find('{').unwrap()..]).unwrap();
        ["read", "write"].map(|way| document["jobs"][0][way]["total_ios"].as_f64().unwrap()).iter().sum()
    }

    fn wrk_requests() -> f64 {
        let printed = fixture("wrk.out");
        let line = printed.lines().find(|line| line.contains(" requests in ")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }
}
