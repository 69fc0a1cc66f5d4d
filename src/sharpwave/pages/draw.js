// Elements and charts. All text goes in as text, so that no name from a folder is ever markup.

const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const SVG = "http://www.w3.org/2000/svg";

// An answer of the server that a live page came from.
async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`);
  return answer.json();
}

// An element: attributes by name, listeners as functions, children as elements or text.
function build(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

const short = (value, digits = 4) =>
  typeof value === "number" && Number.isFinite(value) ? number(value, digits) : "–";

// An integer in full, thousands apart.
const whole = (value) => value.toLocaleString("en-US").replace("-", "−");

// An end of a range: in full where the values are integers.
const end = (value, dtype) =>
  /^u?int/.test(dtype) && Number.isSafeInteger(value) ? whole(value) : short(value);

function bytes(size) {
  if (size === null || size === undefined) return "–";
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (size >= unit) return `${number(size / unit, 3)} ${name}`;
  }
  return `${size} B`;
}

const plural = (n, one, many = `${one}s`) => `${number(n, 15)} ${n === 1 ? one : many}`;

// Like text.ticks: round numbers within [low, high], about `target` of them, and their distance.
function ticks(low, high, target) {
  const width = high - low;
  const power = 10 ** Math.floor(Math.log10(width / target));
  const steps = [1, 2, 2.5, 5, 10].map((multiple) => multiple * power);
  const far = (step) => Math.abs(Math.log(width / step / target));
  const step = steps.reduce((best, one) => (far(one) < far(best) ? one : best));
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) found.push(i * step);
  return { found, step };
}

// Like text.compact: thousands as k, millions as M.
function compact(value, step) {
  const size = Math.max(Math.abs(value), Math.abs(step));
  if (size >= 1e15) return number(value);
  for (const [unit, suffix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return number(value / unit, 6) + (value ? suffix : "");
  }
  return number(value, 6);
}

// A range for an axis that shows [low, high] with a little room, from zero where that is near.
function axis(low, high) {
  if (!(high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high)))) {
    const half = Math.max(Math.abs(low), Math.abs(high)) / 2 || 0.5;
    return [(low + high) / 2 - half, (low + high) / 2 + half];
  }
  const margin = 0.06 * (high - low);
  return [low < 0 || low > margin ? low - margin : 0, high + margin];
}

// An empty chart: caption, axes, grid; `area` is what to draw in, 1000 x 1000 in `svg`. Axes that are
// named in `whole` have integers only, those in `logarithmic` show powers of ten.
function chart({ title, beside, hint, x, y, size = "small", whole = "", logarithmic = "", label, className = "" }) {
  const told = (name, at, step) => (logarithmic.includes(name) ? number(10 ** at, 3) : compact(at, step));
  const area = build("div", { class: "area" });
  const svg = shape("svg", { viewBox: "0 0 1000 1000", preserveAspectRatio: "none", "aria-hidden": "true" });
  area.append(svg);
  const caption = build("figcaption", {}, build("span", { class: "title" }, title), beside ?? null,
    hint ? build("span", { class: "hint" }, hint) : null);
  const plot = build("div", { class: "plot" });
  const left = build("div", { class: "y axis" });
  const below = build("div", { class: "x axis" });
  if (y) {
    const { found, step } = ticks(y[0], y[1], size === "small" ? 3 : 4);
    for (const at of found) {
      if (whole.includes("y") && !Number.isInteger(at)) continue;
      left.append(build("span", { style: { bottom: `${100 * share(at, y)}%` } }, told("y", at, step)));
      svg.append(shape("path", { class: "grid", d: `M0 ${1000 * (1 - share(at, y))}H1000` }));
    }
  }
  const across = ticks(x[0], x[1], 4);
  for (const at of across.found) {
    if (whole.includes("x") && !Number.isInteger(at)) continue;
    below.append(build("span", { style: { left: `${100 * share(at, x)}%` } }, told("x", at, across.step)));
  }
  plot.append(left, area, below);
  const figure = build("figure",
    { class: `chart ${size} ${className}`, tabindex: 0, role: "img", "aria-label": label ?? title }, caption, plot);
  return { figure, area, svg, caption };
}

function showTip(box, head, rows) {
  tip.replaceChildren(build("div", { class: "head" }, head), ...rows.map(([name, value, color]) =>
    build("div", { class: "row" }, build("span", { class: color ? `key c${color}` : "" }, name), build("b", {}, value))));
  tip.hidden = false;
  const flip = box.right + tip.offsetWidth + 20 > innerWidth;
  tip.style.left = `${Math.max(flip ? box.left - tip.offsetWidth - 12 : box.right + 12, 4) + scrollX}px`;
  tip.style.top = `${box.top + scrollY}px`;
}

const hideTip = () => { tip.hidden = true; };

// Bars for how often a value occurs. `pick(low, high)` is called for a bar that is chosen.
function histogram({ title, hint, spread, color, what, whole, pick }) {
  const { edges, counts } = spread;
  const x = [edges[0], edges.at(-1)];
  const most = Math.max(...counts, 1);
  const { figure, area } = chart({
    title, hint, x, y: [0, most * 1.06], whole: whole ? "xy" : "y", size: "medium", className: `histogram c${color}`,
    beside: build("span", { class: "now" }, `mean ${short(spread.mean)}`),
    label: `${title}: ${plural(spread.count, "episode")}, mean ${short(spread.mean)}, from ${short(spread.low)} to ` +
      `${short(spread.high)}. Arrow keys walk along the bars, Enter lists the episodes of one.`,
  });
  const bars = counts.map((count, i) => {
    const bar = build("div", {
      class: "bin",
      style: {
        left: `${100 * share(edges[i], x)}%`, width: `${100 * (edges[i + 1] - edges[i]) / (x[1] - x[0])}%`,
        height: count ? `max(${100 * count / (most * 1.06)}%, 2px)` : 0,
      },
    });
    area.append(bar);
    return bar;
  });
  area.append(build("div", { class: "mean", style: { left: `${100 * share(spread.mean, x)}%` } }));
  let at = -1;
  const mark = (i) => {
    bars[at]?.classList.remove("here");
    at = i;
    bars[i].classList.add("here");
    const box = area.getBoundingClientRect();
    const middle = box.left + box.width * share((edges[i] + edges[i + 1]) / 2, x);
    const part = counts[i] / Math.max(spread.count, 1);
    showTip({ left: middle - 8, right: middle + 8, top: box.top + 12 }, `${what} ${short(edges[i], 6)} to ${short(edges[i + 1], 6)}`,
      [["episodes", number(counts[i], 15), color], ["share", `${number(100 * part, 3)} %`]]);
  };
  const clear = () => {
    bars[at]?.classList.remove("here");
    at = -1;
    hideTip();
  };
  area.addEventListener("pointermove", (event) => {
    const box = area.getBoundingClientRect();
    const value = x[0] + (x[1] - x[0]) * (event.clientX - box.left) / box.width;
    mark(Math.min(Math.max(edges.findLastIndex((edge) => edge <= value), 0), bars.length - 1));
  });
  area.addEventListener("pointerleave", clear);
  area.addEventListener("click", () => at >= 0 && pick(edges[at], edges[at + 1]));
  figure.addEventListener("blur", clear);
  figure.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && at >= 0) pick(edges[at], edges[at + 1]);
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    mark(Math.min(Math.max(at + move, 0), bars.length - 1));
  });
  return figure;
}

// At most `most` places that keep the ends and the extremes of every stretch.
function thinned(ys, most) {
  if (ys.length <= most) return ys.map((_, i) => i);
  const kept = new Set([0, ys.length - 1]);
  const stretch = ys.length / (most / 2);
  for (let begin = 0; begin < ys.length; begin += stretch) {
    const first = Math.floor(begin);
    let low = first, high = first;
    for (let i = first; i < Math.min(begin + stretch, ys.length); i++) {
      if (ys[i] < ys[low]) low = i;
      if (ys[i] > ys[high]) high = i;
    }
    kept.add(low).add(high);
  }
  return [...kept].sort((a, b) => a - b);
}

const MOST_DOTS = 4000;

// One value for every episode in the order they were recorded, and their moving mean.
function timeline({ title, hint, ids, values, pick }) {
  const known = values.map((value, i) => i).filter((i) => Number.isFinite(values[i]));
  const ys = known.map((i) => values[i]), xs = known.map((i) => ids[i]);
  if (ys.length < 2) return null;
  const x = [xs[0], xs.at(-1)], y = axis(Math.min(...ys), Math.max(...ys));
  const { figure, area, svg } = chart({ title, hint, x, y, size: "medium", whole: "x", className: `timeline ${ys.length < 300 ? "few" : ""}`,
    label: `${title}: ${plural(ys.length, "episode")}. Arrow keys walk along them, Enter opens one.` });
  const place = (a, b) => `${(1000 * share(a, x)).toFixed(1)} ${(1000 * (1 - share(b, y))).toFixed(1)}`;
  // Of many episodes every so many are dots: extremes alone would hide where most of them are.
  const every = Math.ceil(ys.length / MOST_DOTS);
  const dots = ys.map((value, i) => (i % every ? "" : `M${place(xs[i], value)}h0`));
  svg.append(shape("path", { class: "curve points c1", d: dots.join("") }));
  const decay = 1 - 2 / (ys.length / 20 + 1);
  let total = 0, weight = 0;
  const means = ys.map((one) => (total = decay * total + one) / (weight = decay * weight + 1));
  if (ys.length > 40) {
    const line = thinned(means, 600).map((i) => place(xs[i], means[i]));
    svg.append(shape("path", { class: "curve c2", d: `M${line.join("L")}` }));
  }
  const cross = element("div", "cross", area), dot = element("div", "dot c1", area);
  let at = ys.length;
  const mark = (i) => {
    at = i;
    figure.classList.add("marked");
    cross.style.left = dot.style.left = `${100 * share(xs[i], x)}%`;
    dot.style.bottom = `${100 * share(ys[i], y)}%`;
    const box = area.getBoundingClientRect();
    const left = box.left + box.width * share(xs[i], x);
    showTip({ left: left - 2, right: left + 2, top: box.top + 12 }, `episode ${number(xs[i], 15)}`,
      [["return", short(ys[i]), 1], ...(ys.length > 40 ? [["moving mean", short(means[i]), 2]] : [])]);
  };
  const clear = () => {
    figure.classList.remove("marked");
    hideTip();
  };
  area.addEventListener("pointermove", (event) => {
    const box = area.getBoundingClientRect();
    mark(nearest(xs, x[0] + (x[1] - x[0]) * (event.clientX - box.left) / box.width));
  });
  area.addEventListener("pointerleave", clear);
  area.addEventListener("click", () => xs[at] !== undefined && pick(xs[at]));
  figure.addEventListener("blur", clear);
  figure.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && xs[at] !== undefined) pick(xs[at]);
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    mark(Math.min(Math.max(at + move, 0), ys.length - 1));
  });
  return figure;
}
