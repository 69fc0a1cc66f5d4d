// The table of episodes: sorted by any column, filtered by conditions such as "return>10 success=1".

const table = {
  root: document.getElementById("episodes"),
  columns: {},
  names: [],
  sort: { name: "episode", up: false },
  shown: 100,
  rows: [],
  fresh: new Set(),
};

const OPERATORS = {
  "=": (a, b) => a === b,
  "!=": (a, b) => a !== b,
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
};

const TRUTH = { true: true, yes: true, false: false, no: false };

// What a condition compares with: truth, a number, or a word.
function operand(text, example) {
  if (typeof example === "boolean") return TRUTH[text] ?? text === "1";
  const value = Number(text.replace("−", "-"));
  return text !== "" && !Number.isNaN(value) ? value : text;
}

// A test of a row for a line of conditions; throws with a word on what is wrong with it.
table.test = function test(line) {
  const tests = line.trim().split(/\s+/).filter(Boolean).map((word) => {
    const parts = word.match(/^(.+?)(<=|>=|!=|=|<|>)(.*)$/);
    if (!parts) {
      if (table.names.includes(word)) return (row) => Boolean(table.columns[word][row]);
      return (row) => table.columns.state[row] === word;
    }
    const [, name, operator, text] = parts;
    if (!table.names.includes(name)) throw new Error(`there is no column ${name}: ${table.names.join(", ")}`);
    if (!text) throw new Error(`${name}${operator} what?`);
    const column = table.columns[name];
    const values = text.split(",").map((one) => operand(one, column.find((value) => value !== null)));
    const holds = OPERATORS[operator];
    if (operator === "!=") return (row) => values.every((value) => holds(column[row], value));
    return (row) => column[row] !== null && values.some((value) => holds(column[row], value));
  });
  return (row) => tests.every((one) => one(row));
};

// What the rows of the table are.
table.unit = () => (table.columns.state?.[0] === "rows" ? "stretch" : "episode");

table.build = function buildTable() {
  table.filter = build("input", {
    type: "search", placeholder: "return>10 length<=200 state=complete", "aria-label": "Filter",
    spellcheck: "false", autocomplete: "off", "aria-describedby": "found",
    input: () => { table.shown = 100; table.update(); },
  });
  table.found = build("p", { class: "found", id: "found", role: "status" });
  table.chips = build("div", { class: "chips" });
  table.body = build("tbody");
  table.head = build("tr");
  table.more = build("button", { type: "button", class: "more", click: () => { table.shown += 500; table.update(); } });
  table.root.replaceChildren(
    build("div", { class: "filter" }, table.filter, table.chips), table.found,
    build("div", { class: "scroll", tabindex: 0 }, build("table", { class: "numbers" }, build("thead", {}, table.head), table.body)),
    table.more);
};

// Takes new rows in: those from `since` on are replaced, those before `first` forgotten.
table.take = function take(news, since, first) {
  const names = Object.keys(news);
  table.names = ["episode", ...["return", "length", "state"].filter((name) => names.includes(name)),
    ...names.filter((name) => !["episode", "return", "length", "state"].includes(name))];
  const old = table.columns.episode ?? [];
  const begin = old.findIndex((id) => id >= first);
  const end = old.findIndex((id) => id >= since);
  const kept = [begin < 0 ? old.length : begin, end < 0 ? old.length : end];
  table.fresh = new Set(old.length ? news.episode.filter((id) => id > old.at(-1)) : []);
  for (const name of table.names) {
    table.columns[name] = [...(table.columns[name] ?? []).slice(...kept), ...news[name]];
  }
  table.headers();
  table.update();
};

table.headers = function headers() {
  table.head.replaceChildren(...table.names.map((name) => {
    const { sort } = table;
    const direction = sort.name === name ? (sort.up ? "ascending" : "descending") : "none";
    return build("th", { scope: "col", "aria-sort": direction }, build("button", {
      type: "button",
      click: () => {
        table.sort = { name, up: sort.name === name ? !sort.up : false };
        table.headers();
        table.update();
        [...table.head.children].find((one) => one.textContent.startsWith(name))?.firstChild.focus();
      },
    }, name, build("span", { class: "arrow", "aria-hidden": "true" }, { ascending: " ↑", descending: " ↓", none: "" }[direction])));
  }));
  table.chips.replaceChildren(...table.names.filter((name) => name !== "episode").slice(0, 12).map((name) =>
    build("button", {
      type: "button", title: `Filter by ${name}`,
      click: () => table.ask(`${table.filter.value} ${name}${name === "state" ? "=complete" : typeof table.columns[name][0] === "boolean" ? "=true" : ">"}`.trim()),
    }, name)));
};

// Filters by a line, as if it was typed.
table.ask = function ask(line) {
  table.filter.value = line;
  table.shown = 100;
  table.update();
  table.filter.focus();
};

table.update = function update() {
  let test;
  table.filter.removeAttribute("aria-invalid");
  try {
    test = table.test(table.filter.value);
  } catch (error) {
    table.filter.setAttribute("aria-invalid", "true");
    table.found.textContent = error.message;
    return;
  }
  const ids = table.columns.episode ?? [];
  const keys = table.columns[table.sort.name] ?? ids;
  const sign = table.sort.up ? 1 : -1;
  table.rows = ids.map((_, row) => row).filter(test).sort((a, b) => {
    const [left, right] = [keys[a], keys[b]];
    if (left === null || right === null) return (left === null) - (right === null);
    return sign * (left > right ? 1 : left < right ? -1 : 0) || ids[a] - ids[b];
  });
  const total = table.unit() === "episode" ? plural(ids.length, "episode") : plural(ids.length, "stretch", "stretches");
  table.found.textContent = table.filter.value.trim() ? `${number(table.rows.length, 15)} of ${total}` : total;
  const focused = document.activeElement?.closest("tr")?.dataset.id;
  table.body.replaceChildren(...table.rows.slice(0, table.shown).map(row));
  table.fresh.clear();
  if (focused) table.body.querySelector(`tr[data-id="${focused}"] button`)?.focus();
  const rest = table.rows.length - table.shown;
  table.more.hidden = rest <= 0;
  table.more.textContent = `Show ${number(Math.min(rest, 500), 15)} more`;
};

function row(at) {
  const id = table.columns.episode[at];
  const here = player.episode?.id === id;
  const open = source.has(id);
  const line = build("tr", { "data-id": id, class: [here && "here", table.fresh.has(id) && "fresh", !open && "closed"].filter(Boolean).join(" ") });
  for (const name of table.names) {
    const value = table.columns[name][at];
    if (name === "episode") {
      const reason = source.reason(id);
      line.append(build("td", {}, open
        ? build("button", { type: "button", "aria-pressed": String(here), click: () => player.open(id, { focus: true }) }, number(id, 15))
        : build("span", { title: "not in this file" }, number(id, 15)),
      reason && reason !== "evenly spread" ? build("span", { class: "badge" }, reason) : null));
    } else if (name === "state") line.append(build("td", {}, build("span", { class: `badge ${value}` }, value)));
    else line.append(build("td", {}, named(name, value)));
  }
  return line;
}

// The episodes that can be opened, in the order of the table.
player.order = () => table.rows.map((at) => table.columns.episode[at]).filter((id) => source.has(id));
player.chosen = () => {
  for (const line of table.body.children) {
    const here = line.dataset.id === String(player.episode.id);
    line.classList.toggle("here", here);
    line.querySelector("button")?.setAttribute("aria-pressed", String(here));
  }
};
