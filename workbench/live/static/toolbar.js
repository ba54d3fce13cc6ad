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
  const report = document.createElement("a");
  // The extension of `workbench lab`; elsewhere the cells are run by the notebook's own menu.
  const cells = window.workbenchLab && document.createElement("button");
  if (cells) {
    Object.assign(cells, { type: "button", textContent: "▶ Run cells", title: "Run the panel's cell and all below, with its settings: the answer appears in this notebook" });
    cells.addEventListener("click", () => window.workbenchLab.runFrom(el));
    bar.append(cells);
  }
  Object.assign(report, { textContent: "Open report", target: "_blank", rel: "noopener" });
  bar.append(run, cancel, progress, text, report);

  const draw = () => {
    run.disabled = !model.get("can_run");
    run.hidden = model.get("is_running");
    cancel.hidden = progress.hidden = !model.get("is_running");
    cancel.disabled = !model.get("can_cancel");
    progress.max = Math.max(1, model.get("cells"));
    progress.value = model.get("cell");
    text.textContent = text.title = model.get("text");
    report.hidden = !model.get("report");
    report.href = model.get("report");
  };
  // A run ends while its button has the focus, or begins: the focus stays with the button that is left.
  const drawAndKeepFocus = () => {
    const hadFocus = bar.contains(document.activeElement);
    draw();
    if (hadFocus && !bar.contains(document.activeElement)) (run.hidden ? cancel : run).focus();
  };
  model.on("change", drawAndKeepFocus);
  draw();

  // Tables of the notebook's cells sort, filter and are kept as in a report.
  const equip = () => home.querySelectorAll(".jp-OutputArea .wb-scroll:not([data-equipped])").forEach((one) => {
    one.dataset.equipped = "yes";
    window.workbenchTables.equipTable(one);
  });
  const equipping = new MutationObserver(equip);

  let waiting = 0, home = null;
  const place = () => {
    home = el.closest(".jp-NotebookPanel");
    const toolbar = home?.querySelector(".jp-NotebookPanel-toolbar");
    if (toolbar) {
      const spacer = toolbar.querySelector(":scope > .jp-Toolbar-spacer");
      toolbar.insertBefore(bar, spacer);
      markOutdated();
      equip();
      equipping.observe(home.querySelector(".jp-Notebook"), { childList: true, subtree: true });
    } else if (waiting++ < 600) {
      requestAnimationFrame(place);
    }
  };

  // Above an answer that is not that of the chosen run, the answer of that run; the old one is pale.
  const note = document.createElement("div");
  note.className = "wb-outdated-note";
  note.setAttribute("role", "status");
  const show = () => home?.querySelector(".wb-results")?.scrollIntoView({ block: "start" });
  const line = (tag, words, name) => {
    const one = document.createElement(tag);
    one.textContent = words;
    one.className = name;
    return one;
  };
  const action = (words, act) => {
    const one = line("button", words, "");
    one.type = "button";
    one.addEventListener("click", act);
    return one;
  };
  const write = ({ title, answer, note: words }) => {
    const actions = line("div", "", "wb-outdated-actions");
    if (answer) actions.append(action("Show its results", show));
    if (window.workbenchLab) actions.append(action("Run the cells with these settings", () => window.workbenchLab.runFrom(el)));
    note.replaceChildren(line("p", title, "wb-help"), line("p", answer, "wb-run-answer"), line("p", words, "wb-help"), actions);
  };
  const put = () => {
    const answer = [...home.querySelectorAll(".jp-OutputArea .wb-headline")].find((one) => !one.closest(".wb-panel"));
    if (!answer || answer.previousElementSibling === note) return;
    answer.before(note);
    answer.classList.add("wb-outdated");
  };
  // An answer may be shown later than the note, or drawn again.
  const watcher = new MutationObserver(put);
  const clear = () => {
    watcher.disconnect();
    note.remove();
    home?.querySelectorAll(".wb-outdated").forEach((one) => one.classList.remove("wb-outdated"));
  };
  const markOutdated = () => {
    clear();
    const outdated = model.get("outdated");
    if (!home || !outdated.title) return;
    write(outdated);
    put();
    watcher.observe(home.querySelector(".jp-Notebook"), { childList: true, subtree: true });
  };
  model.on("change:outdated", markOutdated);

  // The results of a run that has ended, unless they are in sight or somebody writes.
  const showResults = (message) => {
    if (message.do !== "show results") return;
    setTimeout(() => {
      const top = home?.querySelector(".wb-results")?.getBoundingClientRect().top;
      const writes = document.activeElement?.closest("input, textarea, [contenteditable=true]");
      if (!writes && (top < 0 || top > innerHeight - 160)) show();
    }, 400);
  };
  model.on("msg:custom", showResults);
  place();
  return () => {
    waiting = Infinity;
    model.off("change", drawAndKeepFocus);
    model.off("change:outdated", markOutdated);
    model.off("msg:custom", showResults);
    equipping.disconnect();
    clear();
    bar.remove();
  };
}

export default { render };
