// What a language model wrote, an update at a time. Texts become text and never markup.
{
  const { unit, updates } = JSON.parse(document.getElementById("data").textContent).samples;
  const card = document.getElementById("samples");
  const controls = element("div", "walk", card);
  const back = button("‹", "Earlier"), slider = element("input", "", controls), forth = button("›", "Later");
  const place = element("output", "", controls);
  const list = element("div", "written", card);
  // What a reader would not see: ends of lines, tabs, spaces that are several or at an end, controls.
  const unseen = /[\n\t]|^ +| +$| {2,}|[\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/gm;

  function button(sign, label) {
    const made = element("button", "", controls);
    made.type = "button";
    made.textContent = sign;
    made.title = label;
    return made;
  }

  function sign(found) {
    if (found === "\n") return "↵\n";
    if (found === "\t") return "→\t";
    if (found[0] === " ") return "·".repeat(found.length);
    return `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`;
  }

  function write(text, into) {
    let end = 0;
    for (const found of text.matchAll(unseen)) {
      into.append(text.slice(end, found.index));
      element("i", "", into).textContent = sign(found[0]);
      end = found.index + found[0].length;
    }
    into.append(text.slice(end));
    if (!text) element("i", "", into).textContent = "nothing";
  }

  function passage(name, [text, more], parent) {
    element("span", "label", parent).textContent = name;
    const body = element("div", `text ${name}`, parent);
    const shown = element("div", "folded", body);
    write(text, shown);
    if (more) element("i", "", shown).textContent = ` … ${number(more, 12)} more characters are in samples.jsonl`;
    if (shown.scrollHeight <= shown.clientHeight + 1) return shown.classList.remove("folded");
    const toggle = element("button", "", body);
    toggle.type = "button";
    toggle.textContent = "Show all";
    toggle.addEventListener("click", () => {
      toggle.textContent = shown.classList.toggle("folded") ? "Show all" : "Show less";
    });
  }

  function sample(one) {
    const part = element("article", one.rank, list);
    const facts = element("p", "facts", part);
    element("b", "", facts).textContent = one.rank;
    const parts = one.rewards.map(([name, value]) => `${name} ${value === null ? "–" : number(value)}`);
    const told = [one.reward === null ? "no reward" : `reward ${number(one.reward)}`];
    if (parts.length) told[0] += ` (${parts.join(", ")})`;
    if (one.advantage !== null) told.push(`advantage ${number(one.advantage, 3)}`);
    if (one.length !== null) told.push(`${number(one.length, 12)} ${one.length === 1 ? "token" : "tokens"}`);
    if (one.finished !== null) told.push(one.finished ? "finished" : "cut");
    for (const words of told) element("span", words === "cut" ? "cut" : "", facts).textContent = words;
    passage("prompt", one.prompt, part);
    passage("completion", one.completion, part);
  }

  function show(index) {
    const { step, rows } = updates[index];
    const [first, last] = [rows[0], rows[rows.length - 1]];
    const same = rows.length > 1 && first.reward === last.reward;
    place.textContent = `${unit} ${number(step, 12)}` + (same ? `: all rewards are ${number(first.reward)}` : "");
    slider.setAttribute("aria-valuetext", place.textContent);
    slider.value = index;
    back.disabled = index === 0;
    forth.disabled = index === updates.length - 1;
    list.replaceChildren();
    rows.forEach(sample);
  }

  slider.type = "range";
  slider.max = updates.length - 1;
  slider.setAttribute("aria-label", unit);
  slider.addEventListener("input", () => show(Number(slider.value)));
  back.addEventListener("click", () => show(Number(slider.value) - 1));
  forth.addEventListener("click", () => show(Number(slider.value) + 1));
  show(updates.length - 1);
}
