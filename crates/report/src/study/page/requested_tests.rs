//! Tests with synthetic workloads at fixed rates.

use super::*;
use study::analysis::analyse;
use study::analysis::synthetic::{Made, study};
use study::{Better, Combine, Metric};

const LOADS: [(&str, f64); 3] = [("slow", 600.0), ("fast", 2400.0), ("too-fast", 9600.0)];

/// The maximum messages per second of each arm.
const MOST: [(&str, f64); 2] = [("off", 2000.0), ("on", 5000.0)];

fn findings(loads: &[(&'static str, f64)]) -> Findings {
    let workloads = loads.iter().map(|load| load.0).collect();
    let mut collected = study(&Made { workloads, counts: vec![1, 6], ..Made::default() });
    for stored in &mut collected.runs {
        let run = &mut stored.run;
        let asked = loads.iter().find(|load| load.0 == run.cell.workload).unwrap().1;
        let most = MOST.iter().find(|most| most.0 == run.cell.arm["apicv"]).unwrap().1;
        let guests = f64::from(run.cell.guests);
        for metrics in &mut run.guests {
            let carried = asked.min(most);
            let metric = |name: &str, unit, combine, value| Metric {
                name: name.to_owned(),
                unit,
                better: Better::Higher,
                combine,
                value,
            };
            *metrics = vec![
                metric("messages", Unit::PerSecond, Combine::Sum, carried / guests),
                metric(ATTAINED, Unit::Percent, Combine::Mean, carried / asked * 100.0),
            ];
        }
    }
    analyse(&collected, false).unwrap()
}

#[test]
fn each_number_of_guests_has_a_chart_of_all_rates() {
    let findings = findings(&LOADS);
    let charts = all(&findings);
    assert_eq!(charts.iter().map(|asked| asked.guests).collect::<Vec<_>>(), [1, 6]);
    for asked in &charts {
        let rates: Vec<u32> = asked.loads.iter().map(|load| load.rate.round() as u32).collect();
        assert_eq!((asked.metric, &rates[..]), ("messages", &[600, 2400, 9600][..]));
        let of = |arm: usize| -> Vec<u32> {
            asked.loads.iter().map(|load| load.attained[arm].unwrap().round() as u32).collect()
        };
        assert_eq!((of(0), of(1)), (vec![600, 2000, 2000], vec![600, 2400, 5000]));
    }
    let page = section(&findings).into_string();
    assert_eq!(page.matches("<svg role=\"img\"").count(), 2);
    assert!(page.contains("messages attained with 6 VMs") && page.contains("of 9,600"), "{page}");
    assert!(page.contains("<th scope=\"row\">too-fast</th>"), "{page}");
    assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
}

#[test]
fn one_rate_is_no_chart() {
    assert!(all(&findings(&LOADS[..1])).is_empty());
    assert!(section(&findings(&[("one", 600.0), ("other", 601.0)])).into_string().is_empty());
}
