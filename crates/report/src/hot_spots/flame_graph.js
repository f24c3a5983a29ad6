const home = document.getElementById("boxes");
const says = document.getElementById("says");
const reset = document.getElementById("reset");
const number = (element, name) => Number(element.dataset[name]);
const left = number(home, "left"), room = number(home, "width"), letter = number(home, "letter");
const boxes = Array.from(home.children);

function place(box, x, width) {
  const [rect, text] = [box.querySelector("rect"), box.querySelector("text")];
  rect.setAttribute("x", left + x);
  rect.setAttribute("width", Math.max(width, 0.1));
  text.setAttribute("x", left + x + 3);
  const letters = Math.floor(width / letter - 1), name = box.dataset.name;
  text.textContent = name.length <= letters ? name : letters < 3 ? "" : name.slice(0, letters - 1) + "…";
}

function enlarge(chosen) {
  const x = chosen ? number(chosen, "x") : 0, width = chosen ? number(chosen, "width") : room;
  const level = chosen ? number(chosen, "level") : -1, scale = room / width, slack = 0.01;
  for (const box of boxes) {
    const [from, wide, own] = [number(box, "x"), number(box, "width"), number(box, "level")];
    const below = own < level && from <= x + slack && from + wide >= x + width - slack;
    const inside = own >= level && from >= x - slack && from + wide <= x + width + slack;
    box.classList.toggle("outer", below);
    box.classList.toggle("gone", !below && !inside);
    if (below) place(box, 0, room);
    else if (inside) place(box, (from - x) * scale, wide * scale);
  }
  reset.style.visibility = chosen ? "visible" : "hidden";
}

for (const box of boxes) {
  box.addEventListener("click", () => enlarge(box));
  box.addEventListener("mouseenter", () => { says.textContent = box.querySelector("title").textContent; });
}
reset.addEventListener("click", () => enlarge(null));
