// Draws one dashboard with Grafana's own components, from what a real Prometheus answered: ./data.js, see ../take.py.
import React from "react";
import { createRoot } from "react-dom/client";
import { createTheme, dateTime, EventBusSrv, FieldType, getDisplayProcessor, ThemeContext, toDataFrame } from "@grafana/data";
import { BigValue, GlobalStyles, PanelChrome, PanelContextProvider, Table, TimeSeries } from "@grafana/ui";

const CELL = 30;
const GAP = 8;
const HEAD = 56;
const MARGIN = 0.04;

const withDisplay = (frame, theme) => {
  for (const field of frame.fields) {
    field.display = getDisplayProcessor({ field, theme, timeZone: "utc" });
  }
  return frame;
};

const fits = ({ id, options }, series) =>
  (id === "byFrameRefID" && options === series.ref) ||
  (id === "byName" && options === series.name) ||
  (id === "byRegexp" && new RegExp(options.slice(1, -1)).test(series.name));

const overridesOf = (panel, series) =>
  panel.fieldConfig.overrides.filter((each) => fits(each.matcher, series)).flatMap((each) => each.properties);

// A missing point is a gap, as in the panels of a server, which fill frames before they draw them.
const withGaps = ({ times, values }, step) => {
  const found = { times: [], values: [] };
  times.forEach((time, index) => {
    if (index && time - times[index - 1] > 1.5 * step) {
      found.times.push(times[index - 1] + step);
      found.values.push(null);
    }
    found.times.push(time);
    found.values.push(values[index]);
  });
  return found;
};

const configOf = (panel, series) => {
  const defaults = panel.fieldConfig.defaults;
  const config = { ...defaults, custom: { ...defaults.custom }, displayName: series.name };
  for (const { id, value } of overridesOf(panel, series)) {
    if (id.startsWith("custom.")) config.custom[id.slice("custom.".length)] = value;
    else config[id] = value;
  }
  return config;
};

const Lines = ({ panel, found, range, step, theme, width, height }) => {
  const frames = found.map((series, index) => {
    const { times, values } = withGaps(series, step);
    const frame = toDataFrame({
      refId: series.ref,
      fields: [
        { name: "Time", type: FieldType.time, values: times, config: {} },
        { name: series.name, type: FieldType.number, values, config: configOf(panel, series) },
      ],
    });
    frame.fields[1].state = { seriesIndex: index };
    return withDisplay(frame, theme);
  });
  const end = range[1] + MARGIN * (range[1] - range[0]); // the last label is cut otherwise
  const timeRange = { from: dateTime(range[0]), to: dateTime(end), raw: { from: dateTime(range[0]), to: dateTime(end) } };
  return (
    <TimeSeries
      frames={frames}
      timeRange={timeRange}
      timeZone="utc"
      width={width}
      height={height}
      legend={panel.options.legend}
      options={panel.options}
    />
  );
};

const Single = ({ panel, found, theme, width, height }) => {
  const series = found[0];
  const values = series ? [series.values.at(-1)] : [];
  const frame = withDisplay(
    toDataFrame({ fields: [{ name: "value", type: FieldType.number, values, config: panel.fieldConfig.defaults }] }),
    theme,
  );
  const shown = series ? frame.fields[0].display(values[0]) : { text: "No data", numeric: NaN };
  return (
    <BigValue
      value={shown}
      width={width}
      height={height}
      theme={theme}
      colorMode={panel.options.colorMode}
      graphMode={panel.options.graphMode}
      justifyMode={panel.options.justifyMode}
      textMode={panel.options.textMode}
    />
  );
};

const Lists = ({ panel, found, theme, width, height }) => {
  const { excludeByName, indexByName, renameByName } = panel.transformations[0].options;
  const labels = Object.keys(indexByName).filter((name) => name !== "Value");
  const columns = [...labels, ...(excludeByName.Value ? [] : ["Value"])];
  const fields = columns.map((name) => {
    const isValue = name === "Value";
    const shown = renameByName[name] ?? name;
    const config = configOf(panel, { name: shown });
    if (config.mappings) config.color = { mode: "thresholds" };
    return {
      name: shown,
      type: isValue ? FieldType.number : FieldType.string,
      values: found.map((series) => (isValue ? series.values.at(-1) : series.labels[name] ?? "")),
      config,
    };
  });
  return <Table data={withDisplay(toDataFrame({ fields }), theme)} width={width} height={height} />;
};

const KINDS = { timeseries: Lines, stat: Single, table: Lists };

const Board = ({ board, theme, width }) => {
  const column = (width - GAP) / 24;
  const height = Math.max(...board.panels.map((each) => each.gridPos.y + each.gridPos.h)) * (CELL + GAP) + HEAD + GAP;
  return (
    <div style={{ position: "relative", width, height, background: theme.colors.background.canvas }}>
      <h2 style={{ position: "absolute", left: 16, top: 14, margin: 0, fontSize: 20 }}>{board.title}</h2>
      <span style={{ position: "absolute", right: 16, top: 20, color: theme.colors.text.secondary, fontSize: 13 }}>
        drawn by @grafana/ui {__UI__}, outside a Grafana server
      </span>
      {board.panels.map((panel) => {
        const at = panel.gridPos;
        const style = { position: "absolute", left: GAP + at.x * column, top: HEAD + at.y * (CELL + GAP) };
        if (panel.type === "row") {
          return (
            <div key={panel.id} style={{ ...style, fontSize: 16, padding: "4px 8px" }}>
              ⌄ {panel.title}
            </div>
          );
        }
        const Kind = KINDS[panel.type];
        const size = { width: at.w * column - GAP, height: at.h * (CELL + GAP) - GAP };
        return (
          <div key={panel.id} style={style}>
            <PanelChrome title={panel.title} {...size}>
              {(width, height) =>
                panel.found.length || panel.type !== "timeseries" ? (
                  <Kind panel={panel} found={panel.found} range={board.range} step={board.step} theme={theme} width={width} height={height} />
                ) : (
                  <div style={{ padding: 40, textAlign: "center" }}>No data</div>
                )
              }
            </PanelChrome>
          </div>
        );
      })}
    </div>
  );
};

const wanted = new URLSearchParams(location.search);
const theme = createTheme({ colors: { mode: wanted.get("mode") ?? "dark" } });
const context = { eventBus: new EventBusSrv() };
const boards = window.BOARDS;
createRoot(document.getElementById("root")).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <PanelContextProvider value={context}>
      <Board board={boards[wanted.get("board")]} theme={theme} width={Number(wanted.get("width") ?? 1600)} />
    </PanelContextProvider>
  </ThemeContext.Provider>,
);
document.body.style.margin = "0";
