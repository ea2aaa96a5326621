// before the first paint, so that nothing flashes
(() => {
  const kept = localStorage.getItem("mue-theme");
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = kept || (dark ? "dark" : "light");
})();
