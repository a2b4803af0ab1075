// Small pictures and words that stand in several places.
import { html } from "./html.js";
import { GRAVITY, MARKS, MEANINGS, count, number } from "./words.js";

const WIDTH = 120;
const HEIGHT = 28;
const CELL = 6;
const MOST_CELLS = 40;

export function Badge({ status, words }) {
  return html`<span class="badge ${status}"
    ><span aria-hidden="true" class="mark">${MARKS[status]}</span>${words || status}</span
  >`;
}

// One line without axes: how a number went.
export function Sparkline({ course, status }) {
  const known = course ? course.values.map((value, place) => [place, value]).filter(([, value]) => value !== null) : [];
  if (known.length < 2) return html`<span class="muted small">one window so far</span>`;
  const values = known.map(([, value]) => value);
  const low = Math.min(...values);
  const range = Math.max(...values) - low || 1;
  const x = (place) => 3 + (place / (course.values.length - 1)) * (WIDTH - 6);
  const y = (value) => HEIGHT - 4 - ((value - low) / range) * (HEIGHT - 8);
  const path = known.map(([place, value], index) => `${index ? "L" : "M"}${x(place).toFixed(1)} ${y(value).toFixed(1)}`);
  const [place, last] = known[known.length - 1];
  const told = `${course.title}, now ${number(last, course.unit)}, between ${number(low)} and ${number(low + range)}`;
  return html`<svg class="spark ${status}" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label=${told}>
    <title>${told}</title>
    <path d=${path.join(" ")} />
    <circle cx=${x(place)} cy=${y(last)} r="2.6" />
  </svg>`;
}

// One cell for each window, the newest at the right.
export function Strip({ statuses }) {
  const shown = statuses.slice(-MOST_CELLS);
  if (!shown.length) return null;
  const counts = GRAVITY.map((status) => [status, shown.filter(([, each]) => each === status).length]);
  const parts = counts.filter(([, each]) => each).map(([status, each]) => `${each} ${status}`);
  const told = `Last ${count(shown.length, "window")}: ${parts.join(", ")}`;
  return html`<svg class="strip" viewBox="0 0 ${MOST_CELLS * CELL} 14" role="img" aria-label=${told}>
    <title>${told}</title>
    ${shown.map(
      ([, status], place) =>
        html`<rect
          class=${status}
          x=${(MOST_CELLS - shown.length + place) * CELL}
          y=${status === "ok" ? 4 : 0}
          width=${CELL - 1.5}
          height=${status === "ok" ? 10 : 14}
          rx="1.5"
        />`,
    )}
  </svg>`;
}

export function Counts({ counts }) {
  return GRAVITY.filter((status) => counts[status]).map(
    (status) =>
      html`<span class="count ${status}" title="${counts[status]} ${status}: ${MEANINGS[status]}"
        ><span aria-hidden="true">${MARKS[status]}</span> ${counts[status]}<span class="hidden"> ${status}</span></span
      >`,
  );
}

// What one check found, why it matters, what to do, and how it was judged.
export function Finding({ verdict, link }) {
  const limit = verdict.limit ? ` · limit ${number(verdict.threshold, "")}` : "";
  return html`<article class="finding ${verdict.status}">
    <header>
      <${Badge} status=${verdict.status} />
      <h3>${verdict.title}</h3>
      <span class="muted small">${link}</span>
    </header>
    <p class="reason">${verdict.reason}</p>
    <p class="muted small">
      ${verdict.value === null ? "no value" : number(verdict.value, verdict.unit)}${limit} · ${count(verdict.rows, "row")}
      ${verdict.told}
    </p>
    ${verdict.remedy && verdict.status !== "ok" && html`<p class="remedy"><strong>Do</strong> ${verdict.remedy}</p>`}
    ${verdict.meaning && verdict.status !== "ok" && !verdict.explained && html`<p class="small">${verdict.meaning}</p>`}
    ${verdict.explained &&
    html`<details>
      <summary>Explain <span class="hidden">${verdict.title}</span></summary>
      <dl>
        ${verdict.explained.map(([topic, sentence]) => html`<dt>${topic}</dt>
            <dd>${sentence}</dd>`)}
      </dl>
    </details>`}
  </article>`;
}

const MOST_WITNESSES = 6;

// Rows that a finding points at.
export function Witnesses({ exhibit }) {
  const shown = exhibit.rows.slice(0, MOST_WITNESSES);
  const more = exhibit.rows.length - shown.length + exhibit.truncated;
  if (!shown.length) return null;
  return html`<div class="scroll card" tabindex="0" role="region" aria-label=${exhibit.caption}>
    <table>
      <caption>${exhibit.caption}${more > 0 && ` ${count(more, "more row")} not shown.`}</caption>
      <thead><tr>${exhibit.columns.map((column) => html`<th scope="col">${column.replaceAll("_", " ")}</th>`)}</tr></thead>
      <tbody>
        ${shown.map(
          (row) =>
            html`<tr>${row.map((cell) => html`<td>${typeof cell === "number" ? (cell === -1 ? "–" : number(cell)) : cell}</td>`)}</tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}
