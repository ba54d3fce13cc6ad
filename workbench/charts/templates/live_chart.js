// Draws a chart in a live page once the first cell's bundle is there, in the light or the dark set of colours.
(mark => {
  const data = (id) => JSON.parse(document.getElementById(`${mark}-${id}`).textContent);
  const isDark = () => document.body.dataset.jpThemeLight === "false";
  const isObject = (value) => value && typeof value === "object" && !Array.isArray(value);
  const merge = (base, over) => {
    const both = { ...base };
    for (const [key, value] of Object.entries(over)) both[key] = isObject(value) && isObject(both[key]) ? merge(both[key], value) : value;
    return both;
  };
  const dressed = (dark) => {
    const source = data("spec");
    if (!dark) return source;
    const theme = data("dark");
    let text = JSON.stringify(source);
    for (const [from, to] of Object.entries(theme.colours)) text = text.replaceAll(`"${from}"`, `"${to}"`);
    const spec = JSON.parse(text);
    spec.config = merge(spec.config || {}, theme.config);
    spec.background = "transparent";
    return spec;
  };

  // A single view fills the column; compound charts keep their widths, and so does one that is drawn out of sight.
  const COMPOUND = ["hconcat", "vconcat", "concat", "repeat", "facet", "spec"];
  const fitted = (spec, box) => {
    const isSingle = !COMPOUND.some((name) => spec[name]) && !["row", "column", "facet"].some((name) => spec.encoding?.[name]);
    return isSingle && typeof spec.width === "number" && spec.width < box.clientWidth
      ? { ...spec, width: box.clientWidth, autosize: { type: "fit-x", contains: "padding" } }
      : spec;
  };

  let drawn;
  const embed = async (box) => {
    const dark = isDark();
    drawn?.finalize();
    drawn = await window.vegaEmbed(box, fitted(dressed(dark), box), {
      mode: "vega-lite", renderer: "svg", actions: false, tooltip: { theme: dark ? "dark" : "light" },
    });
  };
  const draw = (tries) => {
    const box = document.getElementById(mark);
    if (!box) return;
    if (!window.vegaEmbed) {
      if (tries) setTimeout(() => draw(tries - 1), 100);
      else box.textContent = "Run the first cell again: it brings the charts.";
      return;
    }
    embed(box);
    // Somebody switches the theme; a chart that was replaced is watched no longer.
    const watcher = new MutationObserver(() => (box.isConnected ? embed(box) : watcher.disconnect()));
    watcher.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
  };
  draw(100);
})
