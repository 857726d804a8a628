import assert from "node:assert/strict";
import { test } from "node:test";
import { readMetrics, total, totalsBy } from "../../../../../inferd/bridge/page/static/status/prometheus.js";
import { points, rates } from "../../../../../inferd/bridge/page/static/view/plot.js";
import { settingsOf } from "../../../../../inferd/bridge/page/static/view/settings.js";

test("metrics are read with their labels", () => {
  const metrics = readMetrics('# HELP x\nx{a="1",b="q\\"\\n"} 2\nx{a="2"} 3.5 1700000000\ny 1e3\nbroken{ 1\n');
  assert.equal(total(metrics, "x"), 5.5);
  assert.equal(total(metrics, "y"), 1000);
  assert.equal(total(metrics, "none"), 0);
  assert.equal(metrics.get("x")[0].labels.b, 'q"\n');
  assert.deepEqual(totalsBy(metrics, "x", "a"), [["2", 3.5], ["1", 2]]);
});

test("a plot is drawn from the right, within its picture", () => {
  assert.equal(points([0, 10], 10, 3), "120.0,47.0 240.0,1.0");
  assert.equal(points([5], 0, 1), "0.0,47.0");
  assert.deepEqual(rates([{ at: 1, n: 5 }, { at: 3, n: 9 }, { at: 4, n: 0 }], ({ n }) => n), [2, 0]);
});

test("settings that are left empty are left out", () => {
  const form = new FormData();
  for (const [name, value] of [["temperature", "0.5"], ["top_k", ""], ["system_prompt", "  "], ["context", "refuse"]]) form.set(name, value);
  assert.deepEqual(settingsOf(form, { model_config_name: "m" }), { model_config_name: "m", context: "refuse", sampling_parameters: { temperature: 0.5 } });
});
