// A prebuilt JupyterLab extension, written by hand: the panel of a notebook is there when the notebook is opened.
(() => {
  const NAME = "workbench", PANEL = /\bconfigure_notebook\(/;
  let shared;
  const load = async (name) => (await Object.values(shared[name])[0].get())();

  // Whether the panel's cell has run in this kernel, as after a reload of the page.
  async function hasPanel(kernel) {
    const asked = kernel.requestExecute({
      code: "", silent: true, store_history: false,
      user_expressions: { there: "'workbench.live.panel' in __import__('sys').modules" },
    });
    const reply = await asked.done;
    return reply.content.user_expressions?.there?.data?.["text/plain"] === "True";
  }

  async function showPanel(notebook, actions) {
    await notebook.context.ready;
    await notebook.sessionContext.ready;
    const kernel = notebook.sessionContext.session?.kernel;
    const cells = notebook.content.widgets;
    const last = cells.findIndex((cell) => cell.model.type === "code" && PANEL.test(cell.model.sharedModel.getSource()));
    if (!kernel || last < 0 || !notebook.model.getMetadata(NAME) || (await hasPanel(kernel))) return;
    const first = cells.slice(0, last + 1).filter((cell) => cell.model.type === "code");
    await actions.runCells(notebook.content, first, notebook.sessionContext);
  }

  // Run the cell that shows an element, and all below: what the panel's button does.
  async function runFrom(tracker, actions, node) {
    const notebook = tracker.find((one) => one.node.contains(node));
    const cells = notebook?.content.widgets ?? [];
    const from = cells.findIndex((cell) => cell.node.contains(node));
    if (from < 0) return;
    const below = cells.slice(from).filter((cell) => cell.model.type === "code");
    await actions.runCells(notebook.content, below, notebook.sessionContext);
  }

  async function build() {
    const { INotebookTracker, NotebookActions } = await load("@jupyterlab/notebook");
    return {
      id: `${NAME}:panel`, autoStart: true, requires: [INotebookTracker],
      activate: (app, tracker) => {
        window.workbenchLab = { runFrom: (node) => runFrom(tracker, NotebookActions, node) };
        tracker.widgetAdded.connect((_, notebook) => showPanel(notebook, NotebookActions));
      },
    };
  }

  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB[NAME] = {
    init: (scope) => { shared = scope; },
    get: async () => {
      const plugin = await build();
      return () => ({ __esModule: true, default: plugin });
    },
  };
})();
