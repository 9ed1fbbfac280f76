// Colours: the system's, or those that were chosen here. It runs before anything is drawn.
"use strict";

(() => {
  const KEY = "onepass colours";
  const root = document.documentElement;

  function wear(chosen) {
    if (chosen === "light" || chosen === "dark") root.dataset.colours = chosen;
    else delete root.dataset.colours;
  }

  try {
    wear(localStorage.getItem(KEY));
  } catch {
    // a browser that keeps nothing: the system's colours
  }

  document.addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("colours");
    select.value = root.dataset.colours ?? "";
    select.addEventListener("change", () => {
      wear(select.value);
      try {
        localStorage.setItem(KEY, select.value);
      } catch {
        // until the page is closed
      }
    });
  });
})();
