// Run, progress and cancel of a panel, in the toolbar of the notebook around it; gone when the panel's output goes.
function render({ model, el }) {
  const bar = document.createElement("div");
  bar.className = "wb-toolbar";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Run this notebook to a report");
  const button = (text, action) => {
    const one = document.createElement("button");
    one.type = "button";
    one.textContent = text;
    one.addEventListener("click", () => model.send({ do: action }));
    return one;
  };
  const run = button("▶ Run and make report", "run");
  run.title = "The notebook as it was last saved, with the settings of its panel, in a process of its own";
  const cancel = button("■ Cancel", "cancel");
  const progress = document.createElement("progress");
  progress.setAttribute("aria-label", "Cells that have run");
  const text = document.createElement("span");
  text.className = "wb-toolbar-text";
  bar.append(run, cancel, progress, text);

  const draw = () => {
    run.disabled = !model.get("can_run");
    run.hidden = model.get("is_running");
    cancel.hidden = progress.hidden = !model.get("is_running");
    cancel.disabled = !model.get("can_cancel");
    progress.max = Math.max(1, model.get("cells"));
    progress.value = model.get("cell");
    text.textContent = text.title = model.get("text");
  };
  // A run ends while its button has the focus, or begins: the focus stays with the button that is left.
  const drawAndKeepFocus = () => {
    const hadFocus = bar.contains(document.activeElement);
    draw();
    if (hadFocus && !bar.contains(document.activeElement)) (run.hidden ? cancel : run).focus();
  };
  model.on("change", drawAndKeepFocus);
  draw();

  let waiting = 0;
  const place = () => {
    const toolbar = el.closest(".jp-NotebookPanel")?.querySelector(".jp-NotebookPanel-toolbar");
    if (toolbar) {
      const spacer = toolbar.querySelector(":scope > .jp-Toolbar-spacer");
      toolbar.insertBefore(bar, spacer);
    } else if (waiting++ < 600) {
      requestAnimationFrame(place);
    }
  };
  place();
  return () => {
    waiting = Infinity;
    model.off("change", drawAndKeepFocus);
    bar.remove();
  };
}

export default { render };
