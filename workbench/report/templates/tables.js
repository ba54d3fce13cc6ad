// Tables that a reader sorts, filters and keeps as a file: in reports and in live notebooks. No network.
window.workbenchTables ||= (() => {
  const TALL_ROWS = 12, LONG_CHARS = 60;
  const make = (tag, attributes = {}, text = "") => {
    const one = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) one.setAttribute(name, value);
    one.textContent = text;
    return one;
  };
  const fileName = (text, end) => `${(text || "data").toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60) || "data"}.${end}`;

  function save(name, content, kind) {
    const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: kind }));
    const link = make("a", { href: url, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  // A spreadsheet must not run a cell as a formula.
  function csv(rows) {
    const cell = (value) => {
      let text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
      if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text) && !/^[+-]?[\d.]+(e[+-]?\d+)?$/i.test(text)) text = `'${text}`;
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
  }

  // The number that a cell shows; NaN for a dash, which comes last in any order.
  const number = (text) => parseFloat(text.replace(/[,\s\u202f]/g, "").replace("\u2212", "-"));

  function orderable(table) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells], first = [...body.rows];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", class: "order" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const isNumber = head.classList.contains("num"), now = head.getAttribute("aria-sort");
        const steps = isNumber ? ["descending", "ascending", null] : ["ascending", "descending", null];
        const next = steps[(steps.indexOf(now) + 1) % steps.length];
        heads.forEach((one) => one.removeAttribute("aria-sort"));
        if (next) head.setAttribute("aria-sort", next);
        const sign = next === "descending" ? -1 : 1, text = (row) => row.cells[column].textContent;
        const rows = !next ? first : [...first].sort((a, b) => {
          if (!isNumber) return sign * text(a).localeCompare(text(b), "en", { numeric: true });
          const [left, right] = [number(text(a)), number(text(b))];
          return Number.isNaN(left) ? (Number.isNaN(right) ? 0 : 1) : Number.isNaN(right) ? -1 : sign * (left - right);
        });
        body.append(...rows);
      });
    });
  }

  // A row is hidden by the words of its table's filter, or since another thing was chosen.
  const showRows = (table) => [...table.tBodies[0].rows].forEach((row) => {
    row.hidden = row.classList.contains("unlike") || row.classList.contains("unchosen");
  });

  function filterable(table, line) {
    const box = make("input", { type: "search", class: "filter", placeholder: "Filter rows", "aria-label": `Filter rows of ${title(table)}` });
    const count = make("span", { role: "status" });
    const rows = [...table.tBodies[0].rows];
    box.addEventListener("input", () => {
      const wanted = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.classList.toggle("unlike", !wanted.every((word) => text.includes(word)));
      }
      showRows(table);
      count.textContent = wanted.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
    });
    line.append(box, count);
  }

  const title = (table) => (table.caption ? table.caption.firstChild?.textContent.trim() : "") || "table";

  function equipTable(scroll) {
    const table = scroll.querySelector("table.wb-table");
    if (!table?.tHead || !table.tBodies[0]?.rows.length || table.tBodies[0].querySelector("[colspan]")) return;
    const rows = table.tBodies[0].rows.length;
    if (rows > 1) orderable(table);
    const cells = [...table.tBodies[0].rows].map((row) => [...row.cells]);
    if (cells.some((row) => row.some((cell) => cell.textContent.length > LONG_CHARS))) {
      // On a phone a row is a list of its cells, so that no text lies out of sight.
      table.classList.add("long");
      cells.flat().forEach((cell) => { cell.dataset.label = table.tHead.rows[0].cells[cell.cellIndex].textContent; });
    }
    const edge = () => scroll.classList.toggle("wide", scroll.scrollWidth > scroll.clientWidth + 1);
    new ResizeObserver(edge).observe(scroll);
    edge();
    const line = make("div", { class: "tools-line" });
    if (table.caption) {
      // The caption stays the table's name for a screen reader; what is seen does not scroll away with the rows.
      const seen = make("span", { class: "seen", "aria-hidden": "true" });
      seen.append(...[...table.caption.childNodes].map((one) => one.cloneNode(true)));
      line.append(seen);
      table.caption.classList.add("unseen");
    }
    if (rows > TALL_ROWS) {
      scroll.classList.add("tall");
      filterable(table, line);
    }
    const button = make("button", { type: "button", class: "keep", "aria-label": `Download ${title(table)} as CSV` }, "CSV");
    button.addEventListener("click", () => {
      const heads = [...table.tHead.rows[0].cells];
      const read = (cell, column) => {
        const text = cell.textContent.trim();
        if (cell.dataset.exact) return cell.dataset.exact;
        if (!heads[column].classList.contains("num")) return text;
        return Number.isNaN(number(text)) ? "" : text.replace(/[,\u202f]/g, "").replace("\u2212", "-");
      };
      const lines = [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => [...row.cells].map(read));
      save(fileName(title(table), "csv"), csv([heads.map((head) => head.textContent.trim()), ...lines]), "text/csv");
    });
    line.append(button);
    scroll.before(line);
    if (scroll.tabIndex === 0) {
      scroll.setAttribute("role", "region");
      scroll.setAttribute("aria-label", title(table));
    }
  }

  return { make, fileName, save, csv, showRows, equipTable };
})();
