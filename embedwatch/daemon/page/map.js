// Reference against now in two dimensions.
import { BASE, Chart, tooltip } from "./charts.js";
import { html } from "./html.js";
import { count, number } from "./words.js";

const NARROW = 0.005;
const MOST_NAMED = 8;

export function SpaceMap({ map, kind, choose }) {
  if (!map) {
    return html`<p class="muted">
      There is no map: no rows of this Space came since the daemon started. States, Snapshots, and files that are looked at bring numbers only.
    </p>`;
  }
  const shown = kind === "tsne" ? map.tsne : map.pca;
  const compared = map.reference !== null;
  const usual = Math.round(map.usual_far_ratio * map.drawn);
  const named = map.far.slice(0, MOST_NAMED).map((place) => map.numbers[place]).filter((each) => each !== null);
  return html`
    <fieldset class="choice">
      <legend class="hidden">How rows are laid out</legend>
      <label><input type="radio" name="layout" checked=${kind === "pca"} onChange=${() => choose("pca")} /> principal components</label>
      <label><input type="radio" name="layout" checked=${kind === "tsne"} onChange=${() => choose("tsne")} /> t-SNE</label>
    </fieldset>
    ${shown
      ? html`<${Picture} map=${map} shown=${shown} kind=${kind} />`
      : html`<p class="muted empty">t-SNE is made when somebody looks, apart from what judges; it is here within a minute, where there are rows enough.</p>`}
    <p class="small">
      ${count(map.drawn, "row")} of ${map.rows.toLocaleString("en")} now${compared && `, ${count(map.reference_rows, "row")} of the reference`}.
      ${compared
        ? ` ${count(map.far.length, "row lies", "rows lie")} where the reference has none; of healthy ones about ${usual} would.`
        : " No reference is named for this Space, so there is nothing to compare with: make one with embedwatch reference create."}
      ${named.length > 0 && ` The farthest: row ${named.join(", ")}.`}
    </p>
    <p class="muted small">
      ${kind === "pca"
        ? `Distances count, in these two directions alone: they hold ${percent(map.shares[0])} and ${percent(map.shares[1])} of the variance${compared ? " of the reference" : ""}.`
        : "Neighbours count. Distances between groups and sizes of groups mean nothing."}
    </p>
  `;
}

const percent = (share) => `${number(share * 100)} %`;

function Picture({ map, shown, kind }) {
  const far = new Set(map.far);
  const [x, y] = [0, 1].map((axis) => range([...shown.reference, ...shown.now].map((point) => point[axis])));
  const clamp = ([a, b]) => [Math.min(Math.max(a, x[0]), x[1]), Math.min(Math.max(b, y[0]), y[1])];
  const told = `Map: ${count(shown.now.length, "row")} now, ${count(shown.reference.length, "row")} of the reference, ${map.far.length} far from it`;
  const now = shown.now.map((point, place) => ({ value: clamp(point), place }));
  const name = (axis) => (kind === "pca" ? `component ${axis + 1}` : "");
  const option = (colour) => {
    const axis = (place, [min, max]) => ({
      type: "value",
      min,
      max,
      name: name(place),
      nameLocation: "middle",
      nameGap: 10,
      nameTextStyle: { color: colour.muted, fontSize: 11 },
      axisLabel: { show: false },
      axisTick: { show: false },
      axisLine: { show: true, onZero: false, lineStyle: { color: colour.line } },
      splitLine: { show: false },
    });
    const series = (title, data, symbol, size, style) => ({
      name: title,
      type: "scatter",
      data,
      symbol,
      symbolSize: size,
      itemStyle: style,
      emphasis: { scale: 1.6 },
    });
    return {
      ...BASE,
      grid: { left: 24, right: 10, top: 34, bottom: 24 },
      legend: { top: 0, left: 0, textStyle: { color: colour.text }, inactiveColor: colour.muted, itemGap: 16 },
      tooltip: { trigger: "item", ...tooltip(colour, (point) => tip(map, point)) },
      xAxis: axis(0, x),
      yAxis: axis(1, y),
      series: [
        ...(shown.reference.length ? [series("reference", shown.reference.map(clamp), "circle", 5, { color: colour.before, opacity: 0.55 })] : []),
        series("now", now.filter((each) => !far.has(each.place)), "circle", 5.5, { color: colour.accent, opacity: 0.75 }),
        ...(far.size ? [series("now, far off", now.filter((each) => far.has(each.place)), "diamond", 9, { color: colour.far, opacity: 0.9 })] : []),
      ],
    };
  };
  return html`<${Chart} option=${option} mark=${`${map.time} ${kind}`} label=${told} size="tall" />`;
}

function tip(map, point) {
  if (point.seriesName === "reference") return "a row of the reference";
  const row = map.numbers[point.data.place];
  return `${row === null ? "a row" : `row ${row}`} of the last window`;
}

// What all but a few lie within: one wild row must not make a dot of the rest.
function range(values) {
  const sorted = [...values].sort((one, other) => one - other);
  const at = (share) => sorted[Math.round(share * (sorted.length - 1))];
  const [low, high] = [at(NARROW), at(1 - NARROW)];
  const air = (high - low) * 0.12 || 1;
  return [low - air, high + air];
}
