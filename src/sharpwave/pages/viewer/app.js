// The whole page from a state, and again whenever there is news.

let state = data.state;
let settled = -1;

const put = (id, ...children) => document.getElementById(id).replaceChildren(...children);
const sectionOf = (id) => document.getElementById(id).closest("section");

function facts({ summary }) {
  const kind = summary.kind === "episodes" ? "episodes" : "replay buffer";
  const writer = summary.writer ? `being written by process ${summary.writer}` : "nobody is writing";
  const health = summary.damage.length ? ["failed", "damaged"]
    : summary.verified ? ["finished", "all checksums are right"] : null;
  const parts = [
    data.live ? build("span", { class: "state running live", id: "pulse" }, "live") : null,
    build("span", {}, kind),
    build("span", { class: `state ${summary.writer ? "writing" : "running"}` }, writer),
    health ? build("span", { class: `state ${health[0]}` }, health[1]) : null,
  ];
  put("facts", ...parts.filter(Boolean));
}

function tile(label, value, detail, color) {
  return build("div", { class: color ? `tile main c${color}` : "tile" }, build("dt", {}, label),
    build("dd", {}, build("b", {}, value), detail ? build("span", {}, detail) : null));
}

function tiles({ summary }) {
  const { counts, returns, lengths } = summary;
  const others = ["open", "aborted"].filter((name) => counts[name]).map((name) => `${number(counts[name], 15)} ${name}`);
  const made = [];
  if (returns) made.push(tile("Mean return", short(returns.mean), `${short(returns.low)} to ${short(returns.high)}`, 1));
  if (summary.kind === "episodes" || counts.episodes) {
    made.push(tile("Episodes", number(counts.complete, 15), others.join(", ") || (counts.episodes ? "all complete" : "none so far")));
  }
  made.push(tile("Steps", number(counts.steps, 15), lengths ? `${short(lengths.mean)} in an episode` : null));
  made.push(tile("On disk", bytes(summary.bytes), counts.steps ? `${bytes(Math.round(summary.bytes / counts.steps))} a step` : null));
  put("tiles", ...made);
}

function callouts({ summary }) {
  const say = (id, head, lines) => {
    document.getElementById(id).hidden = !lines.length;
    put(id, build("b", {}, head), build("ul", {}, ...lines.map((line) => build("li", {}, line))));
  };
  say("damage", "Damage", summary.damage);
  say("notes", "What this page does not show", summary.notes);
}

function spreads({ summary }) {
  const { returns, lengths } = summary;
  const range = (name) => (low, high) => table.ask(`${name}>=${low} ${name}<${high}`);
  const quarters = (one) => `median ${short(one.median)}, half of them from ${short(one.lower_quartile)} to ${short(one.upper_quartile)}`;
  const figures = [
    returns && histogram({ title: "Return", hint: quarters(returns), spread: returns, color: 1, what: "return", pick: range("return") }),
    lengths && histogram({ title: "Length", hint: quarters(lengths), spread: lengths, color: 3, what: "length", whole: true, pick: range("length") }),
    returns && timeline({ title: "Return by episode", hint: "complete ones, as recorded; the line is a moving mean", ids: table.columns.episode,
      values: table.columns.return.map((value, at) => (table.columns.state[at] === "complete" ? value : NaN)), pick: (id) => source.has(id) && player.open(id, { focus: true }) }),
  ].filter(Boolean);
  sectionOf("spreads").hidden = !figures.length;
  put("spreads", ...figures);
}

function fields({ summary }) {
  const head = ["Field", "Role", "Type", "On disk", "Least", "Mean", "Greatest", "Range", "Not finite"];
  const rows = summary.fields.map((one) => {
    const type = one.shape.length ? `${one.dtype} ${one.shape.join("×")}` : one.dtype;
    const part = one.rows_read < one.rows
      ? build("span", { class: "badge", title: `read: ${number(one.rows_read, 15)} of ${plural(one.rows, "row")}` }, "sampled") : null;
    const lost = one.nan + one.infinite;
    return build("tr", {},
      build("td", {}, build("code", {}, one.name), one.picture ? build("span", { class: "badge" }, "image") : null, part),
      build("td", {}, one.per_episode ? "of the episode" : one.role),
      build("td", {}, type, one.codec !== "none" ? build("span", { class: "badge" }, one.codec) : null),
      build("td", {}, bytes(one.bytes)),
      build("td", {}, end(one.low, one.dtype)), build("td", {}, short(one.mean)), build("td", {}, end(one.high, one.dtype)),
      build("td", {}, extent(one)),
      build("td", { class: lost ? "bad" : "" }, one.rows_read ? number(lost, 15) : "–"));
  });
  put("fields", build("table", { class: "numbers fields" },
    build("thead", {}, build("tr", {}, ...head.map((name) => build("th", { scope: "col" }, name)))), build("tbody", {}, ...rows)));
}

// Least, mean and greatest on a line from the least to the greatest, zero included.
function extent({ low, mean, high }) {
  if (low === null) return "";
  const ends = [Math.min(low, 0), Math.max(high, 0)];
  if (ends[0] === ends[1]) ends[1] = 1;
  const at = (value) => `${100 * share(value, ends)}%`;
  return build("div", { class: "extent", "aria-hidden": "true" },
    build("i", { class: "zero", style: { left: at(0) } }),
    build("i", { class: "from-to", style: { left: at(low), right: `${100 - 100 * share(high, ends)}%` } }),
    build("i", { class: "middle", style: { left: at(mean) } }));
}

function folder({ summary }) {
  const pairs = [["path", summary.path], ["made by", `sharpwave ${summary.library}, format ${summary.format_version}`],
    ...Object.entries(summary.options).map(([name, value]) => [name.replaceAll("_", " "), named(name, value)])];
  put("folder", ...pairs.map(([name, value]) => build("div", {}, build("dt", {}, name), build("dd", {}, value))));
}

function note(id, text) {
  const heading = sectionOf(id).querySelector("h2");
  heading.querySelector("small")?.remove();
  if (text) heading.firstChild.after(build("small", {}, text));
}

function render(news) {
  facts(news);
  tiles(news);
  callouts(news);
  table.take(news.episodes, settled, news.first);
  settled = news.settled;
  spreads(news);
  fields(news);
  folder(news);
  const total = table.columns.episode.length;
  const unit = table.unit(), all = Math.max(news.summary.counts.episodes, total);
  sectionOf("player").querySelector("h2").firstChild.textContent = `Inside ${unit === "episode" ? "an episode" : "the rows"}`;
  sectionOf("episodes").querySelector("h2").firstChild.textContent = unit === "episode" ? "Episodes" : "Stretches of rows";
  if (!data.live) {
    const n = source.carried.length;
    note("player", n < all ? `${number(n, 15)} of ${plural(all, unit, unit === "episode" ? "episodes" : "stretches")} are in this file; all with: sharpwave inspect FOLDER --serve` : null);
  }
  note("episodes", all > total ? `the newest ${number(total, 15)} of ${number(all, 15)}` : null);
  sectionOf("episodes").hidden = sectionOf("player").hidden = total === 0;
}

// The newest complete episode that can be opened.
function newest() {
  const ids = table.columns.episode;
  for (let at = ids.length - 1; at >= 0; at--) {
    if (source.has(ids[at]) && table.columns.length[at] > 0 && table.columns.state[at] !== "open") return ids[at];
  }
  return ids.findLast((id) => source.has(id));
}

// Asks for news for ever, and says when nobody answers.
async function watch() {
  let news = null;
  try {
    news = await source.news(settled);
  } catch (error) {
    if (!(error instanceof TypeError)) console.error(error);
  }
  if (news && (news.version !== state.version || news.summary.writer !== state.summary.writer)) {
    state = news;
    render(news);
    follow();
  }
  const pulse = document.getElementById("pulse");
  pulse.classList.toggle("lost", !news);
  pulse.textContent = news ? "live" : "the server does not answer";
  setTimeout(watch, 1000);
}

// Opens the newest episode where that is wished, and the open one again when it has grown.
function follow() {
  const { episode } = player;
  const wished = document.getElementById("follow").checked;
  const latest = newest();
  if (!episode || (wished && latest !== episode.id && !player.playing)) {
    if (latest !== undefined) player.open(latest);
  } else if (episode.state === "open" && !player.playing) {
    player.open(episode.id, { step: player.step });
  }
}

function start() {
  const first = source.carried[0] ?? newest();
  if (first !== undefined) player.open(first);
}

table.build();
render(state);
start();
if (data.live) {
  sectionOf("player").querySelector("h2").append(build("label", { class: "follow" },
    build("input", { type: "checkbox", id: "follow" }), "open new episodes as they come"));
  setTimeout(watch, 1000);
}
