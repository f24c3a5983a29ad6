//! The data set behind the pages: examined again at an interval, and queried for one page at a time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use maud::Markup;

use super::course::{Course, Range, Window, first_day};
use super::render::{self, Frame};
use super::rows;
use crate::engine::{Bounds, Engine, Error};
use crate::read::Ends;
use crate::store::{Days, Store};

/// The most pages in the cache.
const KEPT: usize = 32;
/// The longest name or filter in a request, in bytes.
pub(super) const LONGEST: usize = 4096;

/// A requested page.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Page {
    /// All hosts, or those that contain this text.
    Hosts(String),
    /// A host, with a range of time.
    Host(String, &'static str),
    /// A VM of a host, with a range of time.
    Vm(String, String, &'static str),
    /// The findings of all hosts.
    Findings,
    /// The studies.
    Experiments,
}

/// The answer to a request for a page.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// A page.
    Page(String),
    /// A redirect to another page.
    Elsewhere(String),
    /// No such host or VM exists.
    Missing,
}

pub(super) struct Data {
    store: Store,
    bounds: Bounds,
    days: u32,
    refresh: Duration,
    known: Ends,
    engine: Option<(Engine, Instant)>,
    pages: HashMap<Page, Answer>,
}

impl Data {
    pub(super) fn new(store: Store, bounds: Bounds, days: u32, refresh: Duration) -> Self {
        let (known, pages) = (Ends::default(), HashMap::new());
        Self { store, bounds, days, refresh, known, engine: None, pages }
    }

    /// Examines the files if that was not done within the interval. Returns the digest of the data set.
    pub(super) async fn look(&mut self) -> Result<u64, Error> {
        match &self.engine {
            Some((engine, looked)) if looked.elapsed() < self.refresh => Ok(engine.digest),
            _ => self.look_now().await,
        }
    }

    async fn look_now(&mut self) -> Result<u64, Error> {
        let days = Days { since: Some(first_day(self.days)), until: None };
        let bounds = Bounds { days, ..self.bounds.clone() };
        let looked = Engine::open_again(&self.store, bounds, &self.known).await?;
        let digest = looked.digest;
        match &mut self.engine {
            // Keep the old engine, which has parts of the files in memory.
            Some((engine, when)) if engine.digest == digest => *when = Instant::now(),
            engine => {
                *engine = Some((looked, Instant::now()));
                self.pages.clear();
            }
        }
        Ok(digest)
    }

    /// A page. Starts over if compaction removes files meanwhile.
    pub(super) async fn page(&mut self, page: &Page) -> Result<Answer, Error> {
        self.look().await?;
        if let Some(kept) = self.pages.get(page) {
            return Ok(kept.clone());
        }
        let began = Instant::now();
        let answer = loop {
            match self.make(page).await {
                Err(error) if error.is_gone() && began.elapsed() < self.bounds.time => {
                    self.engine = None;
                    self.look_now().await?;
                }
                made => break made?,
            }
        };
        if self.pages.len() >= KEPT {
            self.pages.clear();
        }
        self.pages.insert(page.clone(), answer.clone());
        Ok(answer)
    }

    async fn make(&self, page: &Page) -> Result<Answer, Error> {
        let Some((engine, _)) = &self.engine else { return Ok(Answer::Missing) };
        let frame = Frame { digest: engine.digest, left_out: &engine.left_out, days: self.days };
        let page = match page {
            Page::Hosts(filter) => {
                let (hosts, is_cut) =
                    engine.rows::<rows::Host>(rows::HOSTS, &[&filter.to_lowercase()]).await?;
                if let ([only], true) = (&hosts[..], filter.is_empty()) {
                    return Ok(Answer::Elsewhere(render::path(&only.host, None)));
                }
                render::page(&frame, "Hosts", "/", &render::hosts(&hosts, is_cut, filter))
            }
            Page::Host(host, range) => {
                let (known, _) = engine.rows::<rows::Facts>(rows::FACTS, &[host]).await?;
                let known = match known.into_iter().next() {
                    Some(known) => known,
                    // For some hosts, only exits are known.
                    None if ends(engine, host).await?.is_some() => rows::Facts::default(),
                    None => return Ok(Answer::Missing),
                };
                let (vms, _) = engine.rows(rows::VMS, &[host]).await?;
                let (findings, _) = engine.rows(rows::FINDINGS, &[host]).await?;
                let course = course(engine, host, None, range).await?;
                render::page(&frame, host, "", &render::host(host, &known, &vms, &course, &findings))
            }
            Page::Vm(host, vm, range) => {
                let (vms, _) = engine.rows::<rows::Vm>(rows::VMS, &[host]).await?;
                let looks: Vec<_> = vms.into_iter().filter(|one| one.vm == *vm).collect();
                let course = course(engine, host, Some(vm), range).await?;
                render::page(&frame, vm, "", &render::vm(host, vm, &looks, &course))
            }
            Page::Findings => {
                let (all, is_cut) = engine.rows(rows::COMMON, &[]).await?;
                render::page(&frame, "Findings", "/findings", &render::findings(&all, is_cut))
            }
            Page::Experiments => {
                let (figures, more) = engine.rows(rows::EXPERIMENTS, &[]).await?;
                let (costs, more_costs) = engine.rows(rows::COSTS, &[]).await?;
                let sections = render::experiments(&figures, &costs, more || more_costs);
                render::page(&frame, "Experiments", "/experiments", &sections)
            }
        };
        Ok(Answer::Page(page))
    }
}

/// The first and last time at which a host was observed.
async fn ends(engine: &Engine, host: &str) -> Result<Option<(i64, i64)>, Error> {
    let (ends, _) = engine.rows::<rows::Ends>(rows::ENDS, &[host]).await?;
    Ok(ends.first().and_then(|ends| Some((ends.first?, ends.last?))))
}

async fn course(engine: &Engine, host: &str, vm: Option<&str>, range: &str) -> Result<Markup, Error> {
    let range = Range::of(range);
    let Some((first, last)) = ends(engine, host).await? else { return Ok(render::no_course()) };
    let window = Window::new(range, first, last);
    let texts: Vec<&str> = std::iter::once(host).chain(vm).collect();
    let (exits, _) = engine.rows(&rows::exits(window.from, window.width, vm.is_some()), &texts).await?;
    let (observed, _) = engine.rows(&rows::observed(window.from, window.width), &[host]).await?;
    Ok(Course::new(window, &exits, &observed).render(range, &render::path(host, vm)))
}
