// Charts by ECharts, drawn on a canvas in the colours of the page; whoever cannot see them gets the same as text.
import { html } from "./html.js";
import { Component } from "./preact.js";

const dark = matchMedia("(prefers-color-scheme: dark)");

function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["text", "muted", "line", "card", "accent", "before", "far", "fail", "warn"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// Props: `option` makes what ECharts draws of the colours; it is asked again when `mark` changes.
export class Chart extends Component {
  componentDidMount() {
    this.chart = window.echarts.init(this.place, null, { renderer: "canvas" });
    this.draw = () => this.chart.setOption(this.props.option(colours()), { notMerge: true });
    this.sizes = new ResizeObserver(() => this.chart.resize());
    this.sizes.observe(this.place);
    dark.addEventListener("change", this.draw);
    this.draw();
  }

  shouldComponentUpdate(next) {
    return next.mark !== this.props.mark || next.label !== this.props.label;
  }

  componentDidUpdate() {
    this.draw();
  }

  componentWillUnmount() {
    dark.removeEventListener("change", this.draw);
    this.sizes.disconnect();
    this.chart.dispose();
  }

  render({ label, size }) {
    return html`<div class="chart ${size}" role="img" aria-label=${label} ref=${(place) => (this.place = place || this.place)}></div>`;
  }
}

export const BASE = { animation: false, textStyle: { fontFamily: "system-ui, sans-serif" } };

// Tooltips are drawn on the canvas: markup in them would need inline styles, which the page forbids itself.
export function tooltip(colour, formatter) {
  return {
    renderMode: "richText",
    confine: true,
    backgroundColor: colour.card,
    borderColor: colour.line,
    textStyle: { color: colour.text, fontSize: 12 },
    formatter,
  };
}
