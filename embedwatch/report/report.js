// The page: draws a chart when it comes into view, follows the theme, and prints everything in light colours.
"use strict";
(() => {
  const root = document.documentElement;
  const NAMES = ["text", "muted", "faint", "line", "card", "fail", "warn", "ok", "unknown", "fail-fill", "warn-fill"];
  const LISTS = ["series", "heat", "bands", "diverging"];

  function colours() {
    const style = getComputedStyle(root);
    const one = (name) => style.getPropertyValue(`--${name}`).trim();
    const found = Object.fromEntries(NAMES.map((name) => [name, one(name)]));
    for (const name of LISTS) found[name] = one(name).split(/\s+/);
    return found;
  }

  class Figure {
    constructor(figure) {
      this.figure = figure;
      this.place = figure.querySelector(".chart");
      this.chart = JSON.parse(document.getElementById(figure.dataset.chart).textContent);
      this.state = {};
      this.controls = figure.querySelector(".controls");
    }

    draw() {
      if (!this.view) {
        this.makeControls();
        const width = this.place.clientWidth;
        if (!width) return;
        this.place.style.height = `${Math.round(reportCharts.height(this.chart, width))}px`;
        this.view = echarts.init(this.place, null, { renderer: "canvas", devicePixelRatio: Math.max(2, window.devicePixelRatio || 1) });
        new ResizeObserver(() => this.resize()).observe(this.place);
      }
      this.width = this.place.clientWidth;
      this.view.setOption(reportCharts.options(this.chart, colours(), this.state, this.width), { notMerge: true });
      this.figure.dataset.drawn = "yes";
    }

    resize() {
      const width = this.place.clientWidth;
      if (!width || width === this.width) return;
      this.place.style.height = `${Math.round(reportCharts.height(this.chart, width))}px`;
      this.view.resize();
      this.draw();
    }

    set(name, value) {
      this.state[name] = value;
      this.draw();
    }

    makeControls() {
      if (this.chart.kind === "heat" && this.chart.panels.length > 1)
        this.choice("shows", "panel", this.chart.panels.map((panel, place) => [panel.name || `part ${place + 1}`, place]), Number);
      if (this.chart.kind !== "map") return;
      const [first] = reportCharts.decoded(this.chart);
      const { frames } = this.chart;
      if (frames.length > 1) this.slider(frames);
      if (first.layouts.length > 1)
        this.choice("laid out by", "method", first.layouts.map((each) => [each.told ? `${each.method} (${each.told})` : each.method, each.method]));
      if (first.colours.length > 1) this.choice("colour", "colour", first.colours.map((each) => [each.name, each.name]));
      const box = this.labelled("find", document.createElement("input"));
      Object.assign(box, { type: "search", placeholder: first.names ? "name or row" : "row" });
      let waiting;
      box.addEventListener("input", () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => this.set("search", box.value), 150);
      });
    }

    labelled(text, control) {
      const label = document.createElement("label");
      label.append(text, " ", control);
      this.controls.append(label);
      return control;
    }

    choice(text, name, options, read = String) {
      const select = this.labelled(text, document.createElement("select"));
      for (const [told, value] of options) select.append(new Option(told, value));
      select.addEventListener("change", () => this.set(name, read(select.value)));
    }

    slider(frames) {
      const slide = this.labelled("state", document.createElement("input"));
      Object.assign(slide, { type: "range", min: 0, max: frames.length - 1, value: 0, step: 1 });
      const told = document.createElement("output");
      slide.parentElement.append(" ", told);
      const show = () => {
        told.textContent = frames[slide.value].name;
        slide.setAttribute("aria-valuetext", told.textContent);
      };
      show();
      slide.addEventListener("input", () => {
        show();
        this.set("frame", Number(slide.value));
      });
    }
  }

  const figures = [...document.querySelectorAll("figure[data-chart]")].map((figure) => new Figure(figure));
  const of = new Map(figures.map((figure) => [figure.figure, figure]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries)
      if (entry.isIntersecting && !of.get(entry.target).view) of.get(entry.target).draw();
  }, { rootMargin: "400px" });
  for (const figure of figures) seen.observe(figure.figure);

  const redraw = () => figures.forEach((figure) => figure.view && figure.draw());
  const drawAll = () => figures.forEach((figure) => figure.draw());
  window.embedwatchReport = { drawAll, figures };

  const THEMES = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  let theme = "auto";
  function setTheme(name) {
    theme = name;
    if (name === "auto") delete root.dataset.theme;
    else root.dataset.theme = name;
    button.textContent = { auto: "◐ auto", light: "☀ light", dark: "☾ dark" }[name];
    redraw();
  }
  try {
    const kept = localStorage.getItem("embedwatch-theme");
    if (THEMES.includes(kept)) theme = kept;
  } catch { /* a page from a file may not be allowed to keep anything */ }
  setTheme(theme);
  button.hidden = false;
  button.addEventListener("click", () => {
    setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
    try {
      localStorage.setItem("embedwatch-theme", theme);
    } catch { /* the same */ }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  // A link to what is folded away opens it.
  function open() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    for (let each = target; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
    if (target) target.scrollIntoView();
  }
  window.addEventListener("hashchange", open);
  open();

  let before;
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    drawAll();
  });
  window.addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    redraw();
  });
})();
