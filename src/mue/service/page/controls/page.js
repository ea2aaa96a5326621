// What is about the page itself: its theme, the list of keys, messages.

import { $, hush } from "../dom.js";

const showKeys = () => $("keys").showModal();
$("help").addEventListener("click", showKeys);
$("hush").addEventListener("click", () => hush());
$("theme").addEventListener("click", () => {
  const root = document.documentElement.dataset;
  root.theme = root.theme === "dark" ? "light" : "dark";
  localStorage.setItem("mue-theme", root.theme);
});

export default { keys: { "?": showKeys, escape: () => hush() } };
