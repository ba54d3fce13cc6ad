// A table that sorts by its headers and filters by a word. Everything from the kernel is put in as text, never as HTML.
const STEP = 100;

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

function element(tag, text, attributes = {}) {
  const one = document.createElement(tag);
  if (text !== undefined) one.textContent = text;
  for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
  return one;
}

function render({ model, el }) {
  const state = { by: -1, down: false, words: "", most: STEP };
  const bar = element("div", undefined, { class: "wb-grid-bar" });
  const filter = element("input", undefined, { type: "search", placeholder: "Filter", "aria-label": "Filter the rows" });
  const told = element("span", "", { class: "wb-help", role: "status" });
  const scroll = element("div", undefined, { class: "wb-grid-scroll", tabindex: "0", role: "region" });
  const more = element("button", "Show more rows", { class: "wb-grid-more jp-Button", type: "button" });
  bar.append(filter, told);
  el.classList.add("wb-grid");
  el.append(bar, scroll, more);

  const rows = () => {
    const { texts, keys } = model.get("table");
    const wanted = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = texts.map((_, index) => index)
      .filter((row) => wanted.every((word) => texts[row].some((text) => text.toLowerCase().includes(word))));
    if (state.by < 0) return kept;
    // What is missing comes last, whichever way the others go.
    return kept.sort((a, b) => {
      const [x, y] = [keys[a][state.by], keys[b][state.by]];
      if (x === null || y === null) return (x === null) - (y === null) || a - b;
      return (state.down ? compare(y, x) : compare(x, y)) || a - b;
    });
  };

  const head = (columns) => {
    const line = element("tr");
    columns.forEach((column, index) => {
      const sorted = state.by === index ? (state.down ? "descending" : "ascending") : "none";
      const cell = element("th", undefined, { scope: "col", class: column.kind, "aria-sort": sorted, title: column.meaning });
      const mark = { ascending: " ▲", descending: " ▼", none: "" }[sorted];
      const button = element("button", column.label + mark, { type: "button" });
      button.addEventListener("click", () => {
        // First up, then down, then as they came.
        if (state.by !== index) Object.assign(state, { by: index, down: false });
        else if (!state.down) state.down = true;
        else Object.assign(state, { by: -1, down: false });
        draw();
        scroll.querySelectorAll("th button")[index].focus();
      });
      cell.append(button);
      line.append(cell);
    });
    const all = element("thead");
    all.append(line);
    return all;
  };

  const line = (row, columns, texts) => {
    const one = element("tr");
    const chosen = model.get("selected") === row;
    if (chosen) one.classList.add("wb-chosen");
    columns.forEach((column, index) => {
      const cell = element("td", undefined, { class: column.kind });
      if (index === 0 && model.get("selectable")) {
        const button = element("button", texts[row][0], { type: "button", "aria-pressed": String(chosen), class: "wb-pick" });
        button.addEventListener("click", () => choose(row));
        cell.append(button);
      } else cell.textContent = texts[row][index];
      one.append(cell);
    });
    if (model.get("selectable")) one.addEventListener("click", (event) => {
      if (!event.target.closest("button")) choose(row);
    });
    return one;
  };

  const choose = (row) => {
    model.set("selected", row);
    model.save_changes();
  };

  const draw = () => {
    const { columns, texts, caption, notice } = model.get("table");
    const focused = scroll.contains(document.activeElement) && document.activeElement.classList.contains("wb-pick");
    const shown = rows();
    const table = element("table");
    const body = element("tbody");
    shown.slice(0, state.most).forEach((row) => body.append(line(row, columns, texts)));
    if (!shown.length) {
      const empty = element("tr");
      empty.append(element("td", texts.length ? "No row has these words." : "none", { colspan: String(columns.length || 1) }));
      body.append(empty);
    }
    table.append(element("caption", caption), head(columns), body);
    scroll.replaceChildren(table);
    scroll.setAttribute("aria-label", caption || "Table");
    bar.hidden = texts.length < 2;
    const rest = shown.length === texts.length ? "" : ` of ${texts.length.toLocaleString("en")}`;
    told.textContent = [`${shown.length.toLocaleString("en")}${rest} row${shown.length === 1 && !rest ? "" : "s"}`, notice]
      .filter(Boolean).join("; ");
    more.hidden = shown.length <= state.most;
    if (focused) scroll.querySelector("tr.wb-chosen .wb-pick")?.focus();
  };

  filter.addEventListener("input", () => { Object.assign(state, { words: filter.value, most: STEP }); draw(); });
  more.addEventListener("click", () => { state.most += 5 * STEP; draw(); });
  const renewed = () => { Object.assign(state, { by: -1, down: false, words: "", most: STEP }); filter.value = ""; draw(); };
  model.on("change:table", renewed);
  model.on("change:selected", draw);
  draw();
  return () => { model.off("change:table", renewed); model.off("change:selected", draw); };
}

export default { render };
