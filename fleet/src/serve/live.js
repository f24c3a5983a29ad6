// Updates the parts of a page that have changed, and copies fixes. Without it pages are as they were loaded.
"use strict";
const root = document.documentElement;
const said = document.getElementById("status");
let digest = root.dataset.digest;
// Parts as they came, because sorting and buttons change them.
const sources = new Map();
const parts = (page) => Array.from(page.querySelectorAll("[data-region]"));
for (const part of parts(document)) sources.set(part.id, part.outerHTML);

const copying = (part) => {
  for (const button of part.querySelectorAll("button.copy")) {
    button.hidden = false;
    const text = button.parentElement.querySelector("code");
    button.addEventListener("click", async () => {
      let copied = false;
      try {
        await navigator.clipboard.writeText(text.textContent);
        copied = true;
      } catch {
        // Without encryption browsers have no clipboard for pages of other machines.
        getSelection().selectAllChildren(text);
        copied = document.execCommand("copy");
      }
      button.textContent = copied ? "Copied" : "Selected";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
};
copying(document);

// The place of an element below a part, as the numbers of children.
const placeOf = (element, part) => {
  const place = [];
  for (let at = element; at !== part; at = at.parentElement) {
    place.unshift(Array.from(at.parentElement.children).indexOf(at));
  }
  return place;
};
const at = (place, part) => place.reduce((element, number) => element && element.children[number], part);

// Puts a part in the place of an older one, and leaves to the reader what he has opened, sorted, scrolled and focused.
const replace = (old, part) => {
  const keyOf = (details) => details.id || details.dataset.key;
  const open = new Set(Array.from(old.querySelectorAll("details[open]"), keyOf));
  const sorted = Array.from(old.querySelectorAll("table.sortable"), (table) => {
    const heads = Array.from(table.tHead.rows[0].cells);
    const number = heads.findIndex((head) => head.hasAttribute("aria-sort"));
    return [number, number < 0 ? null : heads[number].getAttribute("aria-sort")];
  });
  const scrolled = Array.from(old.querySelectorAll(".wide"), (wide) => wide.scrollLeft);
  const focused = old.contains(document.activeElement) ? placeOf(document.activeElement, old) : null;
  old.replaceWith(part);
  for (const details of part.querySelectorAll("details")) details.open = open.has(keyOf(details));
  part.querySelectorAll("table.sortable").forEach((table, index) => {
    makeSortable(table);
    const [number, order] = sorted[index] ?? [-1, null];
    const head = table.tHead.rows[0].cells[number];
    for (let click = 0; head && click < 2 && head.getAttribute("aria-sort") !== order; click++) {
      head.querySelector("button")?.click();
    }
  });
  part.querySelectorAll(".wide").forEach((wide, index) => { wide.scrollLeft = scrolled[index] ?? 0; });
  copying(part);
  if (focused) at(focused, part)?.focus({ preventScroll: true });
};

const update = async () => {
  const answer = await fetch(location.href, { headers: { accept: "text/html" }, credentials: "same-origin" });
  // The page is gone, or the token is wanted again.
  if (!answer.ok || (answer.redirected && new URL(answer.url).pathname !== location.pathname)) {
    said.textContent = answer.redirected ? "Reload to go on" : "Could not be updated";
    return;
  }
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const fresh = parts(page);
  const own = parts(document);
  if (fresh.map((part) => part.id).join() !== own.map((part) => part.id).join()) {
    location.reload();
    return;
  }
  fresh.forEach((part, index) => {
    if (sources.get(part.id) === part.outerHTML) return;
    sources.set(part.id, part.outerHTML);
    replace(own[index], document.adoptNode(part));
  });
  digest = page.documentElement.dataset.digest;
  said.textContent = `Updated ${new Date().toISOString().slice(11, 19)} UTC`;
};

let isPaused = false;
let events = null;
let waiting = false;
const watch = () => {
  events = new EventSource("/events");
  events.addEventListener("open", () => { if (!said.textContent) said.textContent = "Live"; });
  events.addEventListener("digest", async (event) => {
    if (event.data === digest || waiting) return;
    waiting = true;
    try {
      await update();
    } catch {
      said.textContent = "Could not be updated";
    }
    waiting = false;
  });
  events.addEventListener("error", () => {
    // Otherwise it asks again by itself.
    if (events.readyState === EventSource.CLOSED && !isPaused) setTimeout(() => { if (!isPaused) watch(); }, 10000);
  });
};
if (said && digest) {
  const button = document.createElement("button");
  button.type = "button";
  button.id = "pause";
  button.textContent = "Pause updates";
  button.addEventListener("click", () => {
    isPaused = !isPaused;
    button.textContent = isPaused ? "Resume updates" : "Pause updates";
    said.textContent = isPaused ? "Paused" : "";
    if (isPaused) events.close(); else watch();
  });
  said.after(button);
  watch();
}
