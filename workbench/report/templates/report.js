(() => {
  const NARROW_PX = 560, WIDE_PX = 800, MOST_SVG_MARKS = 5000;
  const views = new Map();
  const data = (id) => JSON.parse(document.getElementById(id).textContent);
  const charts = () => [...document.querySelectorAll("figure.chart")];

  // Vega-Lite warns, past any level, of each chart whose rows set its height.
  const warn = console.warn.bind(console);
  console.warn = (...words) => { if (!String(words[1]).startsWith('Dropping "fit-')) warn(...words); };
  const parts = (spec) => spec.layer || spec.vconcat || spec.hconcat || spec.concat || [];
  const isPlain = (spec) => Boolean(spec.mark || spec.layer) && !(spec.encoding && (spec.encoding.row || spec.encoding.column || spec.encoding.facet));
  const merge = (base, over) => {
    const isObject = (value) => value && typeof value === "object" && !Array.isArray(value);
    const both = { ...base };
    for (const [key, value] of Object.entries(over)) both[key] = isObject(value) && isObject(both[key]) ? merge(both[key], value) : value;
    return both;
  };

  function rows(spec, named) {
    const own = spec.data && (spec.data.values || named[spec.data.name]);
    const inner = parts(spec);
    const count = Array.isArray(own) ? own.length : 0;
    const below = (child) => rows(child.data ? child : { ...child, data: spec.data }, named);
    return inner.length ? inner.reduce((sum, child) => sum + below(child), 0) : count;
  }

  function kept(source, keep) {
    const copy = structuredClone(source);
    for (const [name, found] of Object.entries(copy.datasets || {})) if (Array.isArray(found)) copy.datasets[name] = keep(found);
    const walk = (view) => {
      if (Array.isArray(view.data?.values)) view.data.values = keep(view.data.values);
      parts(view).forEach(walk);
      if (view.spec) walk(view.spec);
    };
    walk(copy);
    return copy;
  }

  function dressed(source, width) {
    const mode = data("modes")[workbenchMode()];
    let text = JSON.stringify(source);
    for (const [from, to] of Object.entries(mode.colours)) text = text.replaceAll(`"${from}"`, `"${to}"`);
    const spec = JSON.parse(text);
    spec.config = merge(spec.config || {}, mode.config);
    spec.background = "transparent";
    spec.padding = 2;
    if (width > WIDE_PX) spec.config.axisY.labelLimit = 340;
    if (width < NARROW_PX) {
      spec.config.axisY.labelLimit = 110;
      if (spec.hconcat) { spec.vconcat = spec.hconcat; delete spec.hconcat; }
      if (spec.spec || spec.concat) spec.columns = 1;
    }
    fitLegends(spec, width, spec.config);
    return spec;
  }

  function wrapped(text, most) {
    const lines = [""];
    for (const word of text.split(" ")) {
      const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
      if (longer.length <= most || !lines.at(-1)) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
    return lines;
  }

  // As many names of a legend in a row as fit: a colour without its name cannot be read.
  function fitLegends(spec, width, config) {
    const CHAR_PX = 7, SYMBOL_PX = 34;
    const walk = (view) => {
      for (const channel of Object.values(view.encoding || {})) {
        const names = channel?.scale?.domain;
        if (channel?.legend === null || !Array.isArray(names) || !names.every((name) => typeof name === "string")) continue;
        const longest = Math.max(...names.map((name) => name.length), 1);
        const columns = Math.max(1, Math.min(names.length, Math.floor((width - 60) / (longest * CHAR_PX + SYMBOL_PX))));
        channel.legend = { ...channel.legend, columns, labelLimit: 0 };
        // A name longer than the chart is wide goes on in a second line.
        const most = Math.floor((width - 80) / CHAR_PX);
        if (longest > most) channel.legend.labelExpr = `(${JSON.stringify(Object.fromEntries(names.map((one) => [one, wrapped(one, most)])))})[datum.label]`;
      }
      parts(view).forEach(walk);
      if (view.spec) walk(view.spec);
    };
    walk(spec);
  }

  // Compound charts cannot follow their box, so their views get widths, corrected once by what the axes took.
  function scaled(spec, factor, extra) {
    const across = spec.hconcat ? spec.hconcat.length : spec.spec || spec.concat ? spec.columns || 1 : 1;
    const widen = (child) => {
      if (parts(child).length && !child.layer) parts(child).forEach(widen);
      else if (child.encoding?.facet || child.spec) return;
      else child.width = Math.max(80, Math.round((typeof child.width === "number" ? child.width : 300) * factor + extra / across));
    };
    const copy = structuredClone(spec);
    (copy.spec ? [copy.spec] : parts(copy)).forEach(widen);
    return copy;
  }

  const drawnWidth = (box) => {
    const drawing = box.querySelector("svg, canvas");
    // The style sheet shrinks what is too wide, so the drawing is asked for its own width.
    return drawing ? Number(drawing.getAttribute("width")) / (drawing.tagName === "CANVAS" ? devicePixelRatio : 1) : 0;
  };

  async function draw(figure) {
    const box = figure.querySelector(".canvas"), source = data(box.dataset.spec);
    const dark = workbenchMode() === "dark", width = box.clientWidth;
    const marks = rows(source, source.datasets || {});
    const options = {
      mode: "vega-lite", renderer: marks > MOST_SVG_MARKS ? "canvas" : "svg", actions: false, ast: true, logLevel: 1,
      tooltip: { theme: dark ? "dark" : "light" },
    };
    let spec = dressed(chosen?.has(figure) ? kept(source, chosen.keep) : source, width);
    const embed = async (one) => {
      views.get(figure)?.finalize();
      views.set(figure, (await vegaEmbed(box, one, options)));
      views.get(figure).view.addEventListener("click", (_, item) => window.workbench.picked?.(item?.datum));
      // Vega gives the area that one drags over, and rules without rows, a role and no words.
      const mute = "svg [class*='_brush'], svg [role='graphics-symbol']:not([aria-label])";
      box.querySelectorAll(mute).forEach((mark) => mark.setAttribute("aria-hidden", "true"));
    };
    try {
      if (isPlain(spec)) {
        spec.width = "container";
        spec.autosize = { type: "fit-x", contains: "padding" };
        await embed(spec);
      } else {
        const natural = spec.hconcat || spec.vconcat || spec.concat || spec.spec ? width / Math.max(1, naturalWidth(spec)) : 1;
        const first = scaled(spec, natural, 0);
        await embed(first);
        const missing = width - drawnWidth(box);
        if (Math.abs(missing) > 2) await embed(scaled(first, 1, missing));
      }
      figure.classList.add("drawn");
      figure.classList.remove("undrawn");
      figure.classList.toggle("drawn-dark", dark);
      hint(figure, source);
      resettable(figure);
    } catch (error) {
      figure.classList.remove("drawn");
      figure.classList.add("undrawn");
      box.textContent = `This chart could not be drawn (${error.message}); its picture stands in.`;
    }
  }

  function naturalWidth(spec) {
    if (spec.spec) return (spec.columns || 1) * (typeof spec.spec.width === "number" ? spec.spec.width : 300);
    const own = (child) => (typeof child.width === "number" ? child.width : parts(child).length ? naturalWidth(child) : 300);
    const widths = parts(spec).map(own);
    if (spec.concat) return widths.slice(0, spec.columns || widths.length).reduce((sum, one) => sum + one, 0);
    return spec.hconcat ? widths.reduce((sum, one) => sum + one, 0) : Math.max(...widths, 1);
  }

  function hint(figure, source) {
    if (figure.querySelector(".hint")) return;
    const text = JSON.stringify(source), told = [];
    if (text.includes('"bind":"scales"')) told.push("drag to move, click and turn the wheel to zoom, double-click to reset");
    if (/"select":\{[^{}]*(\{[^{}]*\}[^{}]*)*"type":"interval"/.test(text) && !text.includes('"bind":"scales"')) told.push("drag over the upper view to look closer, click it to see all again");
    if (!told.length) return;
    const line = document.createElement("p");
    line.className = "hint";
    line.textContent = told.join("; ");
    figure.querySelector(".canvas").after(line);
  }

  // Sliders and lists below a chart, back to what was asked.
  function resettable(figure) {
    const bindings = figure.querySelector(".vega-bindings:not(:empty)");
    if (!bindings) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "keep";
    button.textContent = "Reset";
    button.addEventListener("click", () => draw(figure));
    bindings.append(button);
  }

  // The wheel belongs to the page until a chart was clicked, or Ctrl is held.
  function guardWheel(box) {
    box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !box.classList.contains("active")) event.stopPropagation();
    }, { capture: true, passive: true });
    box.addEventListener("pointerdown", () => box.classList.add("active"), { capture: true });
    box.addEventListener("pointerleave", () => box.classList.remove("active"));
  }

  const nonce = document.currentScript.nonce;
  async function loadVega() {
    const packed = document.getElementById("vega-bundle");
    if (!packed) return;
    const bytes = Uint8Array.from(atob(JSON.parse(packed.textContent)), (letter) => letter.charCodeAt(0));
    const script = document.createElement("script");
    script.nonce = nonce;
    script.textContent = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    document.head.append(script);
    packed.remove();
  }

  // An old browser keeps the pictures.
  let drawing = loadVega().catch(() => document.documentElement.classList.remove("js"));
  function drawAll() {
    document.documentElement.dataset.charts = "drawing";
    drawing = drawing.then(async () => {
      for (const figure of charts()) await draw(figure);
      window.workbench.draws += 1;
      document.documentElement.dataset.charts = "drawn";
    });
    return drawing;
  }

  let width = innerWidth, timer;
  addEventListener("resize", () => {
    clearTimeout(timer);
    // A phone's address bar changes the height only.
    if (innerWidth !== width) timer = setTimeout(() => { width = innerWidth; drawAll(); }, 150);
  });
  document.addEventListener("workbench-mode", drawAll);

  const toggle = document.getElementById("code-toggle");
  toggle?.addEventListener("click", () => {
    const open = toggle.getAttribute("aria-pressed") !== "true";
    toggle.setAttribute("aria-pressed", String(open));
    toggle.textContent = open ? "Hide all code" : "Show all code";
    document.querySelectorAll("details.code").forEach((one) => { one.open = open; });
  });
  document.getElementById("to-failure")?.addEventListener("click", () => {
    document.querySelector(".cell.failed details.code").open = true;
  });

  charts().forEach((figure) => guardWheel(figure.querySelector(".canvas")));
  // Shows only some rows of the charts that have them, and everything with null.
  let chosen = null;
  const show = (keep, has) => {
    const before = chosen;
    chosen = keep && { keep, has };
    const touched = (figure) => [before, chosen].some((one) => one && one.has(figure));
    drawing = drawing.then(async () => { for (const figure of charts().filter(touched)) await draw(figure); });
    return drawing;
  };
  window.workbench = { views, draws: 0, show, picked: null };
  dispatchEvent(new Event("workbench-ready"));
  drawAll();
})();
