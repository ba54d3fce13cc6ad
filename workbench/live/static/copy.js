// A command line with a button that copies it; where the clipboard is closed it is marked, for Ctrl-C.
function render({ model, el }) {
  el.classList.add("wb-copy");
  const line = document.createElement("code");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "jp-Button lm-Widget jupyter-widgets jupyter-button";
  const said = document.createElement("span");
  said.setAttribute("role", "status");
  said.className = "wb-help";
  const draw = () => { line.textContent = model.get("text"); button.textContent = "Copy command"; said.textContent = ""; };
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(model.get("text"));
      said.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(line);
      said.textContent = "Marked: copy it with Ctrl-C";
    }
  });
  el.append(button, said, line);
  model.on("change:text", draw);
  draw();
  return () => model.off("change:text", draw);
}

export default { render };
