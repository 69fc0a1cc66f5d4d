// One episode: its images and curves, and a cursor over all of them that plays, steps and jumps.

const player = {
  root: document.getElementById("player"),
  episode: null,
  step: 0,
  playing: false,
  speed: 15,
  stages: [],
  cursors: [],
  order: () => [],
  chosen: () => {},
};

player.open = async function open(id, { step = 0, focus = false } = {}) {
  const asked = (player.asked = id);
  let episode;
  try {
    episode = await source.episode(id);
  } catch (error) {
    if (player.asked === asked) player.say(`Episode ${id} cannot be shown: ${error.message}`);
    return;
  }
  if (player.asked !== asked) return;
  player.pause();
  player.episode = episode;
  player.step = Math.min(step, Math.max(episode.length - 1, 0));
  player.build();
  player.show();
  player.chosen(id);
  if (focus) player.root.scrollIntoView({ block: "nearest" });
};

player.say = (text) => player.root.replaceChildren(build("p", { class: "empty card" }, text));

player.build = function buildPlayer() {
  const { episode } = player;
  player.cursors = [];
  player.stages = episode.pictures.filter((picture) => source === onServer || picture.frames?.length).map(stage);
  const charts = [...episode.curves.filter((one) => one.lines[0]?.y.length).map(curves),
    ...episode.heats.filter((one) => one.png).map(heat)];
  const side = player.stages.length
    ? build("div", { class: "stages" }, ...player.stages.map((one) => one.figure)) : null;
  player.root.replaceChildren(
    heading(episode),
    ...(episode.unreadable.length ? [build("p", { class: "callout" }, `Damaged: ${episode.unreadable.join("; ")}`)] : []),
    controls(episode),
    build("div", { class: side ? "view" : "view wide" }, side, build("div", { class: "curves" }, ...charts)),
  );
};

function heading(episode) {
  const order = player.order(), at = order.indexOf(episode.id);
  const go = (by) => order[at + by] !== undefined && player.open(order[at + by]);
  const reason = source.reason(episode.id);
  const meta = Object.entries(episode.meta).filter(([, value]) => !Array.isArray(value) || value.flat(9).length <= 8);
  const facts = [
    ...(episode.return === null ? [] : [["return", short(episode.return, 6)]]),
    ["steps", number(episode.length, 15)],
    ...meta.map(([name, value]) => [name, named(name, value)]),
  ];
  const what = episode.state === "rows" ? "Rows" : "Episode";
  return build("div", { class: "heading" },
    build("button", { type: "button", title: "Previous episode ( [ )", "aria-label": "Previous episode", disabled: at <= 0, click: () => go(-1) }, "‹"),
    build("h3", {}, `${what} ${number(episode.id, 15)}`),
    build("button", { type: "button", title: "Next episode ( ] )", "aria-label": "Next episode", disabled: at < 0 || at === order.length - 1, click: () => go(1) }, "›"),
    ["open", "aborted"].includes(episode.state) ? build("span", { class: `badge ${episode.state}` }, episode.state) : null,
    reason && reason !== "evenly spread" ? build("span", { class: "badge" }, reason) : null,
    build("dl", { class: "about" }, ...facts.map(([name, value]) =>
      build("div", {}, build("dt", {}, name), build("dd", {}, value)))));
}

// A seed is a name and not an amount: every digit, to be copied.
const named = (name, value) =>
  name === "seed" && Number.isSafeInteger(value) ? String(value) : plain(value);

const plain = (value) =>
  Array.isArray(value) ? `[${value.map(plain).join(", ")}]`
    : Number.isSafeInteger(value) ? whole(value) : typeof value === "number" ? short(value, 6)
      : value === null ? "–" : value === true ? "yes" : value === false ? "no" : String(value);

function controls(episode) {
  const last = Math.max(episode.length - 1, 0);
  const button = (name, label, keys, action) =>
    build("button", { type: "button", "aria-label": label, title: `${label} (${keys})`, click: action }, name);
  player.toggle = button("▶", "Play", "space", () => player.playPause());
  player.slider = build("input", {
    type: "range", min: 0, max: last, step: 1, "aria-label": "Step",
    input: (event) => { player.pause(); player.go(Number(event.target.value)); },
  });
  player.counter = build("output", { class: "counter" });
  const speed = build("select", { "aria-label": "Speed", title: "Steps per second", change: (event) => { player.speed = Number(event.target.value); } },
    ...[2, 5, 15, 30, 60].map((rate) => build("option", { value: rate, selected: rate === player.speed }, `${rate}/s`)));
  return build("div", { class: "controls card" },
    build("div", { class: "buttons" },
      button("⇤", "First step", "home", () => player.go(0)),
      button("−", "Step back", "←", () => player.nudge(-1)),
      player.toggle,
      button("+", "Step forward", "→", () => player.nudge(1)),
      button("⇥", "Last step", "end", () => player.go(last))),
    player.slider, player.counter, speed,
    build("span", { class: "keys" }, ...[["space", "play"], ["← →", "step"], ["shift", "×10"], ["[ ]", "episode"]].flatMap(([key, what]) =>
      [build("kbd", {}, key), ` ${what} `])));
}

// The image of a field.
function stage(picture) {
  const canvas = build("canvas", { width: 1, height: 1, role: "img", "aria-label": `${picture.field}, an image` });
  const every = picture.every > 1 ? `every ${picture.every}. step is in this file` : null;
  const figure = build("figure", { class: "stage" }, canvas,
    build("figcaption", {}, build("span", { class: "title" }, picture.field), every ? build("span", { class: "hint" }, every) : null));
  const draw = (made) => {
    if (!made) return;
    // Wide images get the whole width, and the curves go below.
    figure.closest(".view")?.classList.toggle("flat", made.naturalWidth > 2.2 * made.naturalHeight && player.stages.length === 1);
    if (canvas.width !== made.naturalWidth || canvas.height !== made.naturalHeight) {
      canvas.width = made.naturalWidth;
      canvas.height = made.naturalHeight;
      canvas.style.aspectRatio = `${canvas.width} / ${canvas.height}`;
    }
    canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
    canvas.getContext("2d").drawImage(made, 0, 0);
  };
  return { figure, picture, draw };
}

// A cursor over a chart that follows the step, and moves it where it is pointed at.
function cursor(figure, area, x, value) {
  const line = element("div", "cross", area);
  const now = figure.querySelector(".now");
  figure.classList.add("marked");
  const jump = (event) => {
    if (event.type === "pointermove" && !(event.buttons & 1)) return;
    player.pause();
    const box = area.getBoundingClientRect();
    player.go(Math.round(x[0] + (x[1] - x[0]) * (event.clientX - box.left) / box.width));
  };
  area.addEventListener("pointerdown", (event) => {
    area.setPointerCapture(event.pointerId);
    jump(event);
  });
  area.addEventListener("pointermove", jump);
  player.cursors.push((step) => {
    line.style.left = `${100 * share(step, x)}%`;
    if (now) now.replaceChildren(...value(step));
  });
}

// The steps along the x axis; of a single one the middle.
const steps = () => (player.episode.length > 1 ? [0, player.episode.length - 1] : [-1, 1]);

function curves(one) {
  const x = steps();
  const known = one.lines.flatMap((line) => line.y).filter((value) => value !== null);
  const y = axis(known.reduce((a, b) => Math.min(a, b), Infinity), known.reduce((a, b) => Math.max(a, b), -Infinity));
  const fits = known.length > 0;
  const { figure, area, svg } = chart({
    title: one.field, x, y: fits ? y : [0, 1], hint: fits ? null : "no finite number",
    whole: one.stepped ? "xy" : "x", beside: build("span", { class: "now" }), className: "curve-of",
    label: `${one.field}: ${plural(one.lines.length, "curve")} over ${plural(player.episode.length, "step")}`,
  });
  one.lines.forEach((line, i) => {
    const kind = line.y.length === 1 ? "points" : "line";
    svg.append(shape("path", { class: `curve ${kind} c${1 + (i % 6)}`, d: trace(line, x, y, one.stepped) }));
  });
  const values = (step) => one.lines.slice(0, 4).map((line, i) =>
    build("span", { class: `c${1 + (i % 6)}` }, short(line.y[line.x ? nearest(line.x, step) : step], 3)));
  cursor(figure, area, x, (step) => [...values(step), ...(one.lines.length > 4 ? ["…"] : [])]);
  return figure;
}

// The path of a curve; it breaks where a value is no number.
function trace(line, x, y, stepped) {
  let path = "", before = null;
  line.y.forEach((value, i) => {
    if (value === null) {
      before = null;
      return;
    }
    const left = (1000 * share(line.x ? line.x[i] : i, x)).toFixed(1);
    const top = (1000 * (1 - share(value, y))).toFixed(1);
    if (before === null) path += `M${left} ${top}${line.y[i + 1] === null || line.y.length === 1 ? "h0" : ""}`;
    else path += stepped ? `H${left}V${top}` : `L${left} ${top}`;
    before = value;
  });
  return path;
}

// A field of many numbers: steps from left to right, numbers from top to bottom, values as colors.
function heat(one) {
  const x = steps();
  const part = one.shown < one.components ? `${one.shown} of ${one.components} numbers` : `${one.components} numbers`;
  const { figure, area } = chart({ title: one.field, x, whole: "x", hint: `${part}; dark ${short(one.low, 3)}, bright ${short(one.high, 3)}`, className: "heat" });
  area.append(build("img", { src: `data:image/png;base64,${one.png}`, alt: "", draggable: "false" }));
  cursor(figure, area, x, () => []);
  return figure;
}

player.go = function go(step) {
  if (!player.episode) return Promise.resolve();
  player.step = Math.min(Math.max(step, 0), Math.max(player.episode.length - 1, 0));
  return player.show();
};

player.nudge = (by) => {
  player.pause();
  return player.go(player.step + by);
};

player.show = async function show() {
  const { step, episode } = player;
  player.slider.value = step;
  player.slider.setAttribute("aria-valuetext", `step ${step} of ${episode.length - 1}`);
  player.counter.replaceChildren(build("b", {}, number(step, 15)), ` / ${number(Math.max(episode.length - 1, 0), 15)}`);
  for (const move of player.cursors) move(step);
  await Promise.all(player.stages.map(async (one) => {
    const made = await image(source.image(episode.id, one.picture, step));
    if (player.episode === episode && player.step === step) one.draw(made);
  }));
  for (let ahead = 1; ahead <= 8 && step + ahead < episode.length; ahead++) {
    for (const one of player.stages) image(source.image(episode.id, one.picture, step + ahead));
  }
};

player.pause = function pause() {
  player.playing = false;
  player.toggle?.replaceChildren("▶");
  player.toggle?.setAttribute("aria-label", "Play");
};

// Plays at the speed that was chosen, or as fast as the images come.
player.playPause = async function playPause() {
  if (player.playing) {
    player.pause();
    return;
  }
  const { episode } = player;
  if (!episode || episode.length < 2) return;
  if (player.step >= episode.length - 1) await player.go(0);
  player.playing = true;
  player.toggle.replaceChildren("⏸");
  player.toggle.setAttribute("aria-label", "Pause");
  while (player.playing && player.episode === episode && player.step < episode.length - 1) {
    const due = performance.now() + 1000 / player.speed;
    await player.go(player.step + 1);
    await new Promise((done) => setTimeout(done, Math.max(due - performance.now(), 0)));
  }
  if (player.episode === episode) player.pause();
};

document.addEventListener("keydown", (event) => {
  if (!player.episode || event.ctrlKey || event.metaKey || event.altKey) return;
  // Keys belong to the player where nothing else has the focus, or something of its own.
  const mine = event.target === document.body || player.root.contains(event.target);
  const pressing = event.key === " " && event.target.matches("button");
  if (!mine || pressing || event.target.matches("select")) return;
  const far = event.shiftKey ? 10 : 1;
  const order = player.order(), at = order.indexOf(player.episode.id);
  const actions = {
    " ": () => player.playPause(),
    ArrowLeft: () => player.nudge(-far),
    ArrowRight: () => player.nudge(far),
    Home: () => player.nudge(-player.step),
    End: () => player.nudge(player.episode.length),
    "[": () => order[at - 1] !== undefined && player.open(order[at - 1]),
    "]": () => at >= 0 && order[at + 1] !== undefined && player.open(order[at + 1]),
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});
