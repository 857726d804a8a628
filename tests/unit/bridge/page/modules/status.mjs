import assert from "node:assert/strict";
import { test } from "node:test";
import { readMetrics, total, totalsBy } from "../../../../../inferd/bridge/page/static/status/prometheus.js";
import { readDaemon, readLogLine } from "../../../../../inferd/bridge/page/static/status/daemon.js";
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

test("a worker has the numbers of the moment, and what is counted of it", () => {
  const text = [
    'inferd_tokens_total{backend="b",kind="input"} 8', 'inferd_tokens_total{backend="b",kind="cached"} 6', 'inferd_tokens_total{backend="b",kind="output"} 5',
    'inferd_cached_prompts_total{backend="b",outcome="hit"} 1', 'inferd_cached_prompts_total{backend="b",outcome="cache_miss"} 2',
    'inferd_worker_deaths_total{backend="a"} 4', 'inferd_worker_deaths_total{backend="gone"} 9',
  ].join("\n");
  const models = [{ name: "a", running: 1, slots: 2 }, { name: "b", running: 0, resident_bytes: 9 }];
  const { tokens, workers } = readDaemon({ models }, readMetrics(text));
  assert.equal(tokens, 5);
  assert.deepEqual(workers.map(({ name, slots, deaths, resident_bytes: resident }) => [name, slots, deaths, resident]), [["a", 2, 4, undefined], ["b", undefined, 0, 9]]);
  const [, { hits, misses, read, kept }] = workers;
  assert.deepEqual([hits, misses, read, kept], [1, 2, 8, 6]);
});

test("a line of the log is told in parts, and another text as it is", () => {
  const line = { t: "2026-11-24T20:00:01.5Z", level: "warn", component: "x", msg: "worker.exited", backend: "b", code: 9 };
  assert.deepEqual(readLogLine(JSON.stringify(line)), { at: "20:00:01", level: "warn", what: "worker.exited", more: "backend=b code=9" });
  assert.deepEqual(readLogLine("{"), { at: "", level: "", what: "{", more: "" });
});
