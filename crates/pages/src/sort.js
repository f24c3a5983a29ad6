// Makes the heads of sortable tables buttons. Without it the tables are as they were printed.
"use strict";
const makeSortable = (table) => {
  const heads = Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells);
  const body = table.tBodies[0];
  const value = (row, at) => {
    const cell = row.cells[at];
    const number = Number.parseFloat(cell.dataset.value);
    return Number.isNaN(number) ? cell.textContent : number;
  };
  heads.forEach((head, at) => {
    if (head.classList.contains("fixed")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      // Figures begin with the largest, names with the first.
      const figures = head.dataset.kind === "figures";
      const down = head.getAttribute("aria-sort") === (figures ? "descending" : "ascending") ? !figures : figures;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = Array.from(body.rows);
      rows.sort((one, other) => {
        const [a, b] = [value(one, at), value(other, at)];
        // Rows without a figure come last either way.
        if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
        const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
        return down ? -order : order;
      });
      body.append(...rows);
    });
  });
};
for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
