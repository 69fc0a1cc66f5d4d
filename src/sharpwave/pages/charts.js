// The charts are drawn without this script; it adds what the pointer finds.

const charts = JSON.parse(document.getElementById("data").textContent).charts;
const figures = [...document.querySelectorAll("figure[data-chart]")];
const tip = document.getElementById("tip");

for (const figure of figures) {
  const area = figure.querySelector(".area");
  const data = charts[figure.dataset.chart];
  figure.cross = element("div", "cross", area);
  figure.dots = data.series.map((one) => element("div", `dot c${one.color}`, area));
  figure.now = figure.querySelector(".now");
  figure.last = figure.now?.textContent;
}

// Puts the cross-hair of a chart at x; returns what it found there.
function mark(figure, x) {
  const data = charts[figure.dataset.chart];
  figure.cross.style.left = `${100 * share(x, data.x)}%`;
  const found = data.series.map((one, i) => {
    const at = nearest(one.x, x);
    const dot = figure.dots[i];
    const height = share(one.y[at], data.y);
    dot.style.left = `${100 * share(one.x[at], data.x)}%`;
    dot.style.bottom = `${100 * height}%`;
    dot.hidden = height < 0 || height > 1;
    return { one, at };
  });
  figure.classList.add("marked");
  if (figure.now) figure.now.textContent = number(logged(found[0]));
  return found;
}

function clear() {
  for (const figure of figures) {
    figure.classList.remove("marked");
    if (figure.now) figure.now.textContent = figure.last;
  }
  tip.hidden = true;
}

function row(name, value, color) {
  const line = element("div", "row", tip);
  element("span", color ? `key c${color}` : "", line).textContent = name;
  element("b", "", line).textContent = value;
}

// The value itself, however smooth the line is.
const logged = ({ one, at }) => (one.logged ?? one.y)[at];

function value({ one, at }) {
  if (!one.low) return number(logged({ one, at }));
  if (one.kind === "points") return `${number(one.y[at])} ± ${number(one.high[at] - one.y[at], 3)}`;
  return `${number(one.y[at])} [${number(one.low[at], 3)}, ${number(one.high[at], 3)}]`;
}

function show(figure, x) {
  const data = charts[figure.dataset.chart];
  const found = mark(figure, x);
  for (const other of figures) {
    if (other !== figure && other.dataset.group === figure.dataset.group) mark(other, x);
  }
  tip.replaceChildren();
  element("div", "head", tip).textContent = `${data.xName} ${number(x, 12)}`;
  for (const one of found) {
    row(one.one.name, value(one), one.one.color);
    if (one.one.logged) row("moving average", number(one.one.y[one.at]));
  }
  tip.hidden = false;
  const box = figure.querySelector(".area").getBoundingClientRect();
  const left = box.left + box.width * share(x, data.x);
  const flip = left + tip.offsetWidth + 24 > innerWidth;
  tip.style.left = `${Math.max(flip ? left - tip.offsetWidth - 14 : left + 14, 4) + scrollX}px`;
  tip.style.top = `${box.top + Math.min(24, box.height / 4) + scrollY}px`;
}

// The x of a chart that the pointer is nearest to, among all that were logged.
function at(figure, clientX) {
  const data = charts[figure.dataset.chart];
  const box = figure.querySelector(".area").getBoundingClientRect();
  const x = data.x[0] + (data.x[1] - data.x[0]) * (clientX - box.left) / box.width;
  const found = data.series.map((one) => one.x[nearest(one.x, x)]);
  return found.reduce((best, one) => (Math.abs(one - x) < Math.abs(best - x) ? one : best));
}

for (const figure of figures) {
  const area = figure.querySelector(".area");
  area.addEventListener("pointermove", (event) => show(figure, at(figure, event.clientX)));
  area.addEventListener("pointerleave", clear);
  figure.addEventListener("blur", clear);
  figure.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const xs = charts[figure.dataset.chart].series[0].x;
    const from = figure.position ?? xs.length;
    figure.position = Math.min(Math.max(from + move, 0), xs.length - 1);
    show(figure, xs[figure.position]);
  });
}
