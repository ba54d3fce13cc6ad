// Runs before the page is painted, so that a chosen mode never flashes the other one.
document.documentElement.classList.add("js");
try {
  const mode = localStorage.getItem("workbench-mode");
  if (mode === "light" || mode === "dark") document.documentElement.dataset.mode = mode;
} catch { /* storage is closed to some local files */ }
function workbenchMode() {
  return document.documentElement.dataset.mode
    || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}
document.addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("mode-toggle");
  const name = () => { button.textContent = workbenchMode() === "dark" ? "Light" : "Dark"; };
  const changed = () => { name(); document.dispatchEvent(new Event("workbench-mode")); };
  button.addEventListener("click", () => {
    const next = workbenchMode() === "dark" ? "light" : "dark";
    document.documentElement.dataset.mode = next;
    try { localStorage.setItem("workbench-mode", next); } catch { /* as above */ }
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  name();
});
