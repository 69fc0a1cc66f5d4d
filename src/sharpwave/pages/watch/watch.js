// Runs as they are now: one chart of those that are shown, a table of all, and how they differ.

let runs = data.runs;
let lost = false;
const curves = new Map(); // by run and metric, with the version of the run that they are of
const wanted = { metric: null, across: "step", smooth: 0.6, filter: "", logX: false, logY: false };
const chosen = new Map(); // runs that were shown or hidden by hand
const MOST = 12;

const put = (id, ...children) => document.getElementById(id).replaceChildren(...children);
const OPERATORS = {
  "=": (a, b) => a === b || Number(a) === Number(b),
  ">": (a, b) => Number(a) > Number(b),
  "<": (a, b) => Number(a) < Number(b),
};

// The value of a name in a filter: a fact of the run, or one of its options.
const valueOf = (run, name) => String(run[name] ?? run.options[name] ?? "");

// Words of a filter: `lr>1e-4 algorithm=ppo hopper`; all must hold.
function passes(run, word) {
  const parts = /^([\w.]+)([=<>])(.*)$/.exec(word);
  if (parts) return OPERATORS[parts[2]](valueOf(run, parts[1]), parts[3]);
  return `${run.id} ${run.algorithm} ${run.subject} ${run.state}`.toLowerCase().includes(word.toLowerCase());
}

const filtered = () => {
  const words = wanted.filter.split(/\s+/).filter(Boolean);
  return runs.filter((run) => words.every((word) => passes(run, word)));
};

// The first so many of those that pass the filter are shown, but for what was chosen by hand.
function shown() {
  let left = MOST;
  return filtered().filter((run) => chosen.get(run.id) ?? left-- > 0);
}

// Runs that differ in nothing but their seed have one color.
function colors() {
  const known = new Map();
  for (const run of runs) {
    const { seed, ...options } = run.options;
    const group = JSON.stringify([run.algorithm, run.subject, options]);
    if (!known.has(group)) known.set(group, known.size % 6 + 1);
    run.color = known.get(group);
  }
}

function facts() {
  const count = (state) => runs.filter((run) => run.state === state).length;
  put("facts",
    build("span", { class: `state running live ${lost ? "lost" : ""}`, id: "pulse" }, lost ? "the server does not answer" : "live"),
    build("span", {}, plural(runs.length, "run")), build("span", {}, `${count("running")} running`));
}

function metrics() {
  const found = new Map();
  for (const run of shown()) for (const name of run.metrics) found.set(name, (found.get(name) ?? 0) + 1);
  return [...found.keys()];
}

function metric() {
  const known = metrics();
  if (known.includes(wanted.metric)) return wanted.metric;
  const headline = shown().map((run) => run.headline).find((name) => known.includes(name));
  return headline ?? known[0];
}

// Asks for the curves that are shown and not yet here as they are now.
async function fetchCurves() {
  const name = metric();
  await Promise.all(shown().filter((run) => run.metrics.includes(name)).map(async (run) => {
    const key = `${run.id}\n${name}`;
    if (curves.get(key)?.version === run.version) return;
    curves.set(key, await ask(`/curve?run=${encodeURIComponent(run.id)}&metric=${encodeURIComponent(name)}`));
  }));
}

// Exponential moving average without a bias at its start.
function smoothed(y, decay) {
  let total = 0, weight = 0;
  return y.map((one) => (total = decay * total + one) / (weight = decay * weight + 1));
}

function points(run, name) {
  const curve = curves.get(`${run.id}\n${name}`);
  if (!curve?.y.length) return null;
  const x = curve[wanted.across], logged = curve.y;
  const y = wanted.smooth > 0 ? smoothed(logged, wanted.smooth) : logged;
  const kept = x.map((_, i) => i).filter((i) => (!wanted.logX || x[i] > 0) && (!wanted.logY || y[i] > 0));
  const log = (on) => (value) => (on ? Math.log10(value) : value);
  return kept.length ? {
    run, x: kept.map((i) => x[i]).map(log(wanted.logX)), y: kept.map((i) => y[i]).map(log(wanted.logY)), logged: kept.map((i) => logged[i]),
  } : null;
}

function drawCurves() {
  const name = metric();
  const lines = name ? shown().map((run) => points(run, name)).filter(Boolean) : [];
  if (!lines.length) {
    put("curves", build("p", { class: "empty" }, runs.length ? "Nothing that is shown has been logged." : "There are no runs here yet."));
    return;
  }
  const ends = (of) => [Math.min(...lines.flatMap(of)), Math.max(...lines.flatMap(of))];
  const [first, last] = ends((one) => [one.x[0], one.x.at(-1)]);
  const x = last > first ? [wanted.logX ? first : Math.min(first, 0), last] : [first - 0.5, first + 0.5];
  const y = axis(...ends((one) => one.y));
  const units = wanted.across === "step" ? [...new Set(lines.map((one) => one.run.unit))].join(" or ") : "seconds";
  const { figure, area, svg } = chart({
    title: name, hint: `over ${units}`, x, y, size: "large", logarithmic: `${wanted.logX ? "x" : ""}${wanted.logY ? "y" : ""}`,
    label: `${name} of ${plural(lines.length, "run")}`,
  });
  const place = (a, b) => `${(1000 * share(a, x)).toFixed(1)} ${(1000 * (1 - share(b, y))).toFixed(1)}`;
  for (const line of lines) {
    const path = shape("path", { class: `curve c${line.run.color}`, d: `M${line.x.map((at, i) => place(at, line.y[i])).join("L")}${line.x.length === 1 ? "h0" : ""}` });
    path.dataset.run = line.run.id;
    svg.append(path);
  }
  area.addEventListener("pointermove", (event) => point(event, area, lines, x, y));
  area.addEventListener("pointerleave", hideTip);
  put("curves", figure);
}

// Names the run whose curve the pointer is nearest to.
function point(event, area, lines, x, y) {
  const box = area.getBoundingClientRect();
  const at = x[0] + (x[1] - x[0]) * (event.clientX - box.left) / box.width;
  const up = y[0] + (y[1] - y[0]) * (box.bottom - event.clientY) / box.height;
  const found = lines.map((line) => ({ line, i: nearest(line.x, at) }));
  const { line, i } = found.reduce((best, one) =>
    (Math.abs(one.line.y[one.i] - up) < Math.abs(best.line.y[best.i] - up) ? one : best));
  for (const path of area.querySelectorAll(".curve")) path.classList.toggle("aside", path.dataset.run !== line.run.id);
  const plain = (value, log) => short(log ? 10 ** value : value);
  const left = box.left + box.width * share(line.x[i], x);
  showTip({ left: left - 2, right: left + 2, top: box.top + 12 }, line.run.id, [
    [wanted.across, plain(line.x[i], wanted.logX)], [metric(), short(line.logged[i]), line.run.color],
    ...(wanted.smooth > 0 ? [["moving average", plain(line.y[i], wanted.logY)]] : []),
  ]);
}

function controls() {
  const change = (name, read) => (event) => {
    wanted[name] = read(event.target);
    render();
  };
  const toggle = (name, text) => build("label", {},
    build("input", { type: "checkbox", id: name, checked: wanted[name], input: change(name, (one) => one.checked) }), text);
  const across = build("select", { id: "across", input: change("across", (one) => one.value) },
    build("option", { value: "step" }, "over steps"), build("option", { value: "seconds" }, "over seconds"));
  put("controls",
    build("select", { id: "metric", "aria-label": "metric", input: change("metric", (one) => one.value) }),
    across, build("label", {}, "smooth", build("input", {
      type: "range", id: "smooth", min: 0, max: 0.99, step: 0.01, value: wanted.smooth, input: change("smooth", (one) => Number(one.value)) })),
    toggle("logX", "log x"), toggle("logY", "log y"),
    build("input", { type: "search", id: "filter", placeholder: "filter: ppo  learning_rate>1e-4  seed=0", "aria-label": "filter", input: change("filter", (one) => one.value) }));
}

function drawMetrics() {
  const select = document.getElementById("metric"), known = metrics();
  const same = known.length === select.options.length && known.every((name, i) => select.options[i].value === name);
  if (!same) select.replaceChildren(...known.map((name) => build("option", { value: name }, name)));
  select.value = metric() ?? "";
}

function drawRuns() {
  const visible = new Set(shown().map((run) => run.id));
  const rows = filtered().map((run) => build("tr", {},
    build("td", {}, build("label", {},
      build("input", { type: "checkbox", "data-run": run.id, checked: visible.has(run.id), input: (event) => {
        chosen.set(run.id, event.target.checked);
        render();
      } }), build("span", { class: `key c${run.color}` }, run.id))),
    build("td", {}, run.algorithm.toUpperCase()), build("td", {}, run.subject), build("td", {}, String(run.seed ?? "–")),
    build("td", {}, run.steps === null ? "–" : whole(run.steps)), build("td", {}, `${short(run.value)} ${run.headline}`),
    build("td", {}, build("span", { class: `state ${run.state}` }, run.state))));
  const head = ["Run", "Algorithm", "Environment", "Seed", "Steps", "Last", "State"];
  put("runs", build("div", { class: "scroll whole" }, build("table", { class: "numbers runs" },
    build("thead", {}, build("tr", {}, ...head.map((name) => build("th", { scope: "col" }, name)))), build("tbody", {}, ...rows))));
}

// The options in which the runs that are shown differ, a row each.
function drawOptions() {
  const compared = shown();
  const names = [...new Set(compared.flatMap((run) => Object.keys(run.options)))];
  const apart = names.filter((name) => new Set(compared.map((run) => run.options[name])).size > 1);
  if (compared.length < 2 || !apart.length) {
    put("options", build("p", { class: "empty" }, compared.length < 2 ? "One run alone differs from none." : "None."));
    return;
  }
  put("options", build("div", { class: "scroll whole" }, build("table", { class: "numbers runs" },
    build("thead", {}, build("tr", {}, build("th", { scope: "col" }, "Option"),
      ...compared.map((run) => build("th", { scope: "col" }, build("span", { class: `key c${run.color}` }, run.id))))),
    build("tbody", {}, ...apart.map((name) => build("tr", {}, build("td", {}, build("code", {}, name)),
      ...compared.map((run) => build("td", {}, run.options[name] ?? "–"))))))));
}

async function render() {
  colors();
  facts();
  drawMetrics();
  drawRuns();
  drawOptions();
  try {
    await fetchCurves();
  } catch (error) {
    if (!(error instanceof TypeError)) console.error(error);
  }
  drawCurves();
}

// Asks for news for ever, and says when nobody answers.
async function watch() {
  let news = null;
  try {
    news = await ask("/runs");
  } catch (error) {
    if (!(error instanceof TypeError)) console.error(error);
  }
  const told = (list) => JSON.stringify(list.map(({ id, version, state }) => [id, version, state]));
  const changed = news && told(news) !== told(runs);
  if (news) runs = news;
  if (lost === Boolean(news) || changed) {
    lost = !news;
    await render();
  }
  setTimeout(watch, 2000);
}

controls();
render();
setTimeout(watch, 1000);
