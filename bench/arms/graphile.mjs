// graphile-worker, tuned as its own performance tests are: a local queue of 500, completions in batches.
// The competitor's end of the wire is that of bench/arms/gate.py: one line of JSON out, one line in.
import { createInterface } from "node:readline";
import { writeSync } from "node:fs";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const order = JSON.parse(process.argv[2]);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const answer = (figures) => writeSync(1, JSON.stringify(figures) + "\n");
const told = () => lines.next();

const ARGS = ["https://example.com/some/path/to/a/page?of=medium&length=60", 12345678, ["a", "b"]];
const FILL = 5000;
const silent = new Logger(() => () => {});
const preset = {
  worker: {
    connectionString: order.url,
    concurrentJobs: order.concurrency,
    maxPoolSize: order.concurrency + 5,
    localQueue: { size: order.batch },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

const utils = await makeWorkerUtils({ connectionString: order.url, logger: silent });
await utils.migrate();
for (let start = 0; start < order.jobs; start += FILL) {
  const count = Math.min(FILL, order.jobs - start);
  await utils.addJobs(Array.from({ length: count }, () => ({ identifier: "noop", payload: ARGS })));
}
await utils.release();
const observer = new pg.Client({ connectionString: order.url });
await observer.connect();

answer({ is_ready: true });
await told();

let ran = 0;
let began = 0n;
let done;
const allRan = new Promise((resolve) => (done = resolve));
const noop = async () => {
  if (ran === 0) began = process.hrtime.bigint();
  ran += 1;
  if (ran === order.jobs) done();
};
const cpu = process.cpuUsage();
const runner = await run({ preset, taskList: { noop }, logger: silent, noHandleSignals: true });
await allRan;
const left = "select exists (select from graphile_worker._private_jobs) as found";
while ((await observer.query(left)).rows[0].found) await new Promise((resolve) => setTimeout(resolve, 5));
const tookS = Number(process.hrtime.bigint() - began) / 1e9;
const { user, system } = process.cpuUsage(cpu);
answer({ rate: order.jobs / tookS, python_us: (user + system) / order.jobs });
await told();
await runner.stop();
await observer.end();
process.exit(0);
