// The mixin of embedwatch: alerts, recording rules and dashboards, with what people change about them in `_config`.
//
//   (import 'mixin.libsonnet') { _config+:: { embedwatchSelector: 'cluster="a"' } }
//
// As YAML for Prometheus:
//   jsonnet -S -e "std.manifestYamlDoc((import 'mixin.libsonnet').prometheusAlerts)"
//
// With `_config` as it is, this is what `dashboards/prometheus/embedwatch.rules.yml` holds. `embedwatch.json` is
// generated: a text with gaps is a list there, and is filled in here.
local data = import 'embedwatch.json';

{
  _config:: {
    // Matchers that every selector gets besides, without braces: 'cluster="a",team=~"ml.*"'.
    embedwatchSelector: '',
    // The scrape jobs of embedwatch, as a regular expression: for EmbedwatchDown, which looks at `up`.
    embedwatchJob: 'embedwatch.*',
    // Where the pages of docs/runbooks/ are served.
    runbookURL: 'https://example.com/embedwatch/runbooks',

    // Limits of the alerts on embedwatch itself. Those of checks belong to the checks, and come with the metrics.
    staleSeconds: 900,
    overheadRatio: 0.05,

    // By name of an alert: another `for`, another severity. Alerts named in `without` are left out.
    hold: {},
    severity: {},
    without: [],

    // Added to the tags of each dashboard.
    dashboardTags: [],
  },

  local config = self._config,

  local selecting(selector) = if selector == '' then { only: '', also: '' } else {
    only: '{' + selector + '}',
    also: ',' + selector,
  },
  local gaps = {
    job: std.escapeStringJson(config.embedwatchJob),
    runbooks: config.runbookURL,
    staleSeconds: '%g' % config.staleSeconds,
    staleMinutes: '%g' % (config.staleSeconds / 60),
    overheadRatio: '%g' % config.overheadRatio,
    overheadPercent: '%g' % (config.overheadRatio * 100),
  },
  local inQuery = gaps + selecting(config.embedwatchSelector),
  // In a template Go formats the query, so that a `%` is doubled.
  local inTemplate = gaps + selecting(std.strReplace(config.embedwatchSelector, '%', '%%')),

  local isGap(value) = std.isObject(value) && std.objectHas(value, 'gap'),
  local joined(parts, gaps) = std.join('', [if isGap(part) then gaps[part.gap] else part for part in parts]),
  local filled(value, gaps) =
    if std.isArray(value) then
      if std.length(std.filter(isGap, value)) > 0 then joined(value, gaps)
      else [filled(inner, gaps) for inner in value]
    else if std.isObject(value) then std.mapWithKey(function(name, inner) filled(inner, gaps), value)
    else value,

  local rule(given) =
    filled(given { annotations:: {} }, inQuery)
    + (if 'annotations' in given then { annotations: filled(given.annotations, inTemplate) } else {})
    + (if 'alert' in given && given.alert in config.hold then { 'for': config.hold[given.alert] } else {})
    + (
      if 'alert' in given && given.alert in config.severity
      then { labels+: { severity: config.severity[given.alert] } }
      else {}
    ),

  local kept(given) = !('alert' in given && std.count(config.without, given.alert) > 0),
  local group(given) = given { rules: [rule(each) for each in given.rules if kept(each)] },

  prometheusAlerts+:: { groups+: [group(each) for each in data.alerts] },
  prometheusRules+:: { groups+: [group(each) for each in data.records] },
  grafanaDashboards+:: {
    [name]: filled(data.dashboards[name], inQuery) { tags+: config.dashboardTags }
    for name in std.objectFields(data.dashboards)
  },
}
