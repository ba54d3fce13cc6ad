// What a reader does with a page: contents, folded sections, sorted and filtered tables, files to keep. No network.
(() => {
  const LONG_CHARS = 60, MOST_CHOICES = 200;
  const { make, fileName, save, csv, showRows, equipTable } = window.workbenchTables;

  // Anchors by name, which stay when a section is added; a button copies the link to one.
  const names = new Set([...document.querySelectorAll("[id]")].map((one) => one.id));
  function name(target, text) {
    const plain = text.toLowerCase().normalize("NFD").replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "part";
    let wanted = plain;
    for (let more = 2; !target.id && names.has(wanted); more += 1) wanted = `${plain}-${more}`;
    target.id ||= wanted;
    names.add(target.id);
    const link = make("button", { type: "button", class: "link", "aria-label": `Copy the link to ${text.trim()}`, title: "Copy the link" });
    link.addEventListener("click", async () => {
      history.replaceState(null, "", `#${target.id}`);
      try { await navigator.clipboard.writeText(location.href); link.dataset.done = "copied"; } catch { link.dataset.done = "in the address bar"; }
      setTimeout(() => { delete link.dataset.done; }, 2000);
    });
    target.append(link);
  }

  // Sections: what stands below a heading, up to the next one.
  function foldSections() {
    const found = [];
    for (const heading of document.querySelectorAll("main > .prose > h2:first-child, main > .provenance > h2")) {
      const home = heading.parentElement, body = [...home.children].slice(1);
      if (home.classList.contains("prose")) {
        for (let next = home.nextElementSibling; next && next.tagName === "SECTION"; next = next.nextElementSibling) {
          if (next.classList.contains("provenance") || next.querySelector(":scope > h2:first-child")) break;
          body.push(next);
        }
      }
      const button = make("button", { type: "button", class: "fold", "aria-expanded": "true" });
      button.append(...heading.childNodes);
      heading.append(button);
      const turn = (open) => {
        button.setAttribute("aria-expanded", String(open));
        body.forEach((one) => one.classList.toggle("folded", !open));
        if (open) dispatchEvent(new Event("resize"));
      };
      button.addEventListener("click", () => turn(button.getAttribute("aria-expanded") !== "true"));
      name(heading, button.textContent);
      found.push({ heading, body, turn });
    }
    const unfold = () => {
      const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!target) return;
      found.filter((one) => one.heading.contains(target) || one.body.some((part) => part.contains(target))).forEach((one) => one.turn(true));
      target.scrollIntoView();
    };
    addEventListener("hashchange", unfold);
    return found;
  }

  function listContents(parts) {
    if (parts.length < 3) return;
    const nav = make("nav", { class: "contents", "aria-label": "Contents" });
    const list = make("ol");
    const links = parts.map(({ heading }) => {
      const link = make("a", { href: `#${heading.id}` }, heading.querySelector(".fold").textContent);
      const item = make("li");
      item.append(link);
      list.append(item);
      return link;
    });
    const fold = make("details");
    fold.append(make("summary", {}, "Contents"), list);
    nav.append(fold);
    document.querySelector("main").prepend(nav);
    const wide = matchMedia("(min-width: 1200px)");
    const place = () => { fold.open = wide.matches; };
    wide.addEventListener("change", place);
    place();
    const mark = () => {
      let now = -1;
      parts.forEach(({ heading }, index) => { if (heading.getBoundingClientRect().top < innerHeight / 3) now = index; });
      links.forEach((link, index) => (index === now ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
    };
    addEventListener("scroll", mark, { passive: true });
    mark();
  }

  // The rows behind a chart: of its data sets the one with most.
  function chartRows(source) {
    const sets = [];
    const walk = (value) => {
      if (!value || typeof value !== "object") return;
      if (Array.isArray(value.values)) sets.push(value.values);
      for (const [key, inner] of Object.entries(value)) if (key !== "values") walk(inner);
    };
    walk(source);
    sets.push(...Object.values(source.datasets || {}).filter(Array.isArray));
    const rows = sets.sort((a, b) => b.length - a.length)[0] || [];
    const names = [...new Set(rows.flatMap((row) => (row && typeof row === "object" ? Object.keys(row) : [])))];
    return [names, ...rows.map((row) => names.map((name) => row[name]))];
  }

  function equipChart(figure) {
    const name = figure.querySelector("figcaption strong")?.textContent || "chart";
    const page = () => getComputedStyle(document.body).backgroundColor;
    const view = () => window.workbench.views.get(figure).view;
    const actions = {
      PNG: async () => {
        const drawn = await view().toCanvas(2), sheet = make("canvas", { width: drawn.width, height: drawn.height });
        const pen = sheet.getContext("2d");
        pen.fillStyle = page();
        pen.fillRect(0, 0, sheet.width, sheet.height);
        pen.drawImage(drawn, 0, 0);
        sheet.toBlob((blob) => save(fileName(name, "png"), blob));
      },
      SVG: async () => save(fileName(name, "svg"), (await view().toSVG()).replace("<svg", `<svg style="background:${page()}"`), "image/svg+xml"),
      CSV: async () => {
        const source = JSON.parse(document.getElementById(figure.querySelector(".canvas").dataset.spec).textContent);
        save(fileName(name, "csv"), csv(chartRows(source)), "text/csv");
      },
    };
    const line = make("div", { class: "tools-line" });
    for (const [kind, act] of Object.entries(actions)) {
      const button = make("button", { type: "button", class: "keep", "aria-label": `Download ${name} as ${kind}` }, kind);
      button.addEventListener("click", act);
      line.append(button);
    }
    figure.querySelector("details.words").before(line);
  }

  function copyable(code) {
    const button = make("button", { type: "button", class: "keep copy", "aria-label": `Copy ${code.textContent}` }, "Copy");
    button.addEventListener("click", async () => {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      // A browser that closes the clipboard to files still has the text selected.
      try { await navigator.clipboard.writeText(code.textContent); button.textContent = "Copied"; } catch { button.textContent = "Selected"; }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    code.after(" ", button);
  }

  // Drill-down: what is chosen in a table, a chart or the list shows only its rows in all tables and charts.
  // What a reader goes by; other texts of two tables, such as verdicts, are no thing to look at alone.
  const KEYS = new Set(["query", "operator", "stage", "side", "stack", "metric", "indicator", "app_name", "log", "target", "component", "input", "partition", "gang"]);
  function drillDown() {
    const tables = [...document.querySelectorAll("main .out table.wb-table")].filter((table) => table.tHead && !table.querySelector("tbody [colspan]"));
    const figures = [...document.querySelectorAll("figure.chart")];
    const sources = new Map(figures.map((figure) => [figure, JSON.parse(document.getElementById(figure.querySelector(".canvas").dataset.spec).textContent)]));
    const columns = new Map();
    const meet = (key, value, place) => {
      if (!KEYS.has(key) || typeof value !== "string" || !value || value === "\u2013" || value.length > LONG_CHARS) return;
      if (!columns.has(key)) columns.set(key, { places: new Set(), values: new Set() });
      columns.get(key).places.add(place);
      columns.get(key).values.add(value);
    };
    const keyed = (table) => [...table.tHead.rows[0].cells].map((head) => (head.classList.contains("num") ? "" : head.dataset.column || ""));
    for (const table of tables) keyed(table).forEach((key, index) => { if (key) for (const row of table.tBodies[0].rows) meet(key, row.cells[index].textContent.trim(), table); });
    for (const figure of figures) {
      const [heads, ...rows] = chartRows(sources.get(figure));
      heads.forEach((key, index) => rows.forEach((row) => meet(key, row[index], figure)));
    }
    const linked = [...columns].filter(([, { places, values }]) => places.size > 1 && values.size > 1 && values.size <= MOST_CHOICES);
    if (!linked.length) return;
    const box = make("select", { id: "choice", "aria-label": "Show only" });
    box.append(make("option", { value: "" }, "Show everything"));
    for (const [key, { values }] of linked) {
      const group = make("optgroup", { label: key.replaceAll("_", " ") });
      [...values].sort((a, b) => a.localeCompare(b, "en", { numeric: true })).forEach((value) => group.append(make("option", { value: JSON.stringify([key, value]) }, value)));
      box.append(group);
    }
    const choose = (key, value) => {
      box.value = key ? JSON.stringify([key, value]) : "";
      document.body.classList.toggle("chosen", Boolean(key));
      for (const table of tables) {
        const index = key ? keyed(table).indexOf(key) : -1;
        for (const row of table.tBodies[0].rows) row.classList.toggle("unchosen", index >= 0 && row.cells[index].textContent.trim() !== value);
        showRows(table);
        const rows = [...table.tBodies[0].rows], scroll = table.closest(".wb-scroll");
        scroll.dataset.none = index >= 0 && rows.every((row) => row.hidden) ? `No row of ${value} among those shown here.` : "";
      }
      window.workbench.show(key ? (rows) => rows.filter((row) => !row || typeof row !== "object" || !(key in row) || row[key] === value) : null, (figure) => columns.get(key)?.places.has(figure));
    };
    box.addEventListener("change", () => choose(...(box.value ? JSON.parse(box.value) : [])));
    const isLinked = new Set(linked.map(([key]) => key));
    for (const table of tables) {
      keyed(table).forEach((key, index) => {
        if (!isLinked.has(key)) return;
        for (const row of table.tBodies[0].rows) {
          const cell = row.cells[index], value = cell.textContent.trim();
          if (!columns.get(key).values.has(value)) continue;
          cell.classList.add("pick");
          cell.title = `Show only ${value}; once more: everything`;
          cell.addEventListener("click", () => (box.value === JSON.stringify([key, value]) ? choose() : choose(key, value)));
        }
      });
    }
    window.workbench.picked = (datum) => {
      const key = [...isLinked].find((one) => columns.get(one).values.has(datum?.[one]));
      if (key) choose(key, datum[key]);
    };
    document.querySelector(".bar .tools").prepend(box);
  }

  // What lies beside the report in its run's folder is linked only where the report lies there, too.
  function linkNeighbours() {
    const place = document.body.dataset.place;
    if (!place || decodeURIComponent(location.pathname).endsWith(`/${place}`)) return;
    document.querySelectorAll("a.beside").forEach((link) => link.replaceWith(make("span", { title: "Not part of this file: it lies in the run's folder" }, link.textContent)));
    document.querySelector(".bar a.beside, .bar span[title]")?.remove();
  }

  // What scrolls is reached by keys.
  const reach = () => document.querySelectorAll("main pre").forEach((one) => { if (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight) one.tabIndex = 0; });
  addEventListener("resize", reach);
  reach();

  listContents(foldSections());
  document.querySelectorAll("main .out .wb-scroll").forEach(equipTable);
  document.querySelectorAll("figure.chart").forEach(equipChart);
  document.querySelectorAll("figcaption strong").forEach((title) => name(title, title.textContent));
  linkNeighbours();
  const seen = new IntersectionObserver(([one]) => document.body.classList.toggle("scrolled", !one.isIntersecting));
  seen.observe(document.querySelector(".hero .verdict"));
  addEventListener("workbench-ready", drillDown);
  document.querySelectorAll(".wb-next code").forEach((code) => { if (/^\S+ /.test(code.textContent)) copyable(code); });
})();
