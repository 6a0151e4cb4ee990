// `npm run demo`: delivery orders change in MongoDB transactions in two pods, one pod is killed, the broker freezes, and
// every event arrives on its topic: in order, none lost, none doubled where that is promised. `-- --json` prints one
// object; the exit code tells whether an invariant broke. `-- --orders N` changes the size, `-- --hints off` lets the
// lanes find their work by polls alone.
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { setTimeout as wait } from 'node:timers/promises';
import { Kafka, logLevel } from 'kafkajs';
import mongoose from 'mongoose';
import { startKafka, startKafkaMock } from '../services/kafka/kafka.handle.js';
import type { KafkaHandle } from '../services/kafka/kafka.types.js';
import { ServiceMissingError, up } from '../services/services.js';
import { Arrivals } from './arrivals.js';
import { scrape } from './metrics.js';
import { Customers } from './orders.js';
import { Pod } from './pod.js';

const RETAIL = 'delivery-orders-retail';
const WHOLESALE = 'delivery-orders-wholesale';
const CUSTOMERS = 8;
/** A dead pod's partitions are taken after its lease of 30 s; twice that is a demo that hangs. */
const DRAIN_MS = 120_000;
const FREEZE_MS = 4_000;

const json = process.argv.includes('--json');
const hints = hintsArgument();
const orders = Number(process.argv[process.argv.indexOf('--orders') + 1] || 0) || 200;
const say = (line: string): void => void (json || process.stdout.write(`${line}\n`));

/** A misspelt word would measure the wrong thing. */
function hintsArgument(): 'on' | 'off' {
  if (!process.argv.includes('--hints')) return 'on';
  const word = process.argv[process.argv.indexOf('--hints') + 1];
  if (word === 'on' || word === 'off') return word;
  process.stderr.write('usage: npm run demo -- [--orders N] [--hints on|off] [--json]\n');
  process.exit(2);
}

/** Pods wake each other through Redis; a machine that has none shows the same promises, a little slower. */
async function redis(): Promise<string> {
  try {
    return (await up(['redis'], say)).redisUrl ?? '';
  } catch (error) {
    if (!(error instanceof ServiceMissingError)) throw error;
    say("no Redis here: pods find each other's work by polls");
    return '';
  }
}

async function main(): Promise<boolean> {
  say('services and build');
  const { mongoUri } = await up(['mongo'], say);
  // What the compiler says goes to standard error: standard output is the result's alone.
  execFileSync('npm', ['run', '--silent', 'build'], { stdio: ['ignore', 2, 'inherit'] });
  const uri = new URL(mongoUri!);
  uri.pathname = `/demo_${randomUUID().slice(0, 8)}`;
  const kafka = await startKafka(say).catch(() => startKafkaMock(say));
  const connection = await mongoose.createConnection(uri.href).asPromise();
  const pods: Pod[] = [];
  const arrivals = new Arrivals();
  try {
    await createTopics(kafka.brokers);
    await arrivals.listen(kafka.brokers, [RETAIL, WHOLESALE]);
    const env = {
      MONGO_URI: uri.href,
      KAFKA_BROKERS: kafka.brokers,
      QUEUE_REDIS_URL: hints === 'on' ? await redis() : '',
      JOBS_HINTS: hints,
    };
    pods.push(...(await Promise.all([Pod.start(env), Pod.start(env)])));
    say(`hints ${hints}; metrics at ${pods.map((pod) => pod.metricsUrl).join(' and ')}`);
    return await run(pods, env, kafka, connection, arrivals);
  } finally {
    const ends = await Promise.all(pods.map((pod) => pod.stop()));
    say(`pods ended with ${ends.join(', ')}`);
    await arrivals.stop();
    await connection.dropDatabase();
    await connection.close();
    await kafka.remove();
  }
}

async function run(
  pods: Pod[],
  env: Record<string, string>,
  kafka: KafkaHandle,
  connection: mongoose.Connection,
  arrivals: Arrivals,
): Promise<boolean> {
  const began = performance.now();
  const customers = new Customers(() => pods);
  const progress = setInterval(() => show(customers, arrivals), 1_000);
  try {
    await Promise.all([serve(customers), disturb(customers, pods, env, kafka)]);
    say('\nall orders are in; waiting for the last events');
    await drained(connection, arrivals);
  } finally {
    clearInterval(progress);
  }
  return report(pods, customers, connection, arrivals, (performance.now() - began) / 1000);
}

async function serve(customers: Customers): Promise<void> {
  let next = 0;
  const customer = async (): Promise<void> => {
    while (next < orders) await customers.order(++next);
  };
  await Promise.all(Array.from({ length: CUSTOMERS }, customer));
}

/** A third of the way one pod is killed and replaced; at two thirds the broker freezes for a while. */
async function disturb(
  customers: Customers,
  pods: Pod[],
  env: Record<string, string>,
  kafka: KafkaHandle,
): Promise<void> {
  while (customers.tally.orders < orders / 3) await wait(20);
  say('\nSIGKILL to one pod');
  pods[1]!.kill();
  const next = await Pod.start(env);
  pods.push(next);
  say(`\na new pod took its place; metrics at ${next.metricsUrl}`);
  while (customers.tally.orders < (orders * 2) / 3) await wait(20);
  say('\nthe broker freezes');
  kafka.freeze();
  await wait(FREEZE_MS);
  kafka.thaw();
  say('\nthe broker goes on');
}

async function drained(connection: mongoose.Connection, arrivals: Arrivals): Promise<void> {
  const deadline = performance.now() + DRAIN_MS;
  const jobs = connection.collection('jobs');
  for (let before = -1; performance.now() < deadline; before = arrivals.all.length) {
    const waiting = await jobs.countDocuments({ status: 'PENDING' });
    if (waiting === 0 && arrivals.all.length === before) return;
    await wait(500);
  }
}

async function report(
  pods: Pod[],
  { tally }: Customers,
  connection: mongoose.Connection,
  arrivals: Arrivals,
  seconds: number,
): Promise<boolean> {
  const changes = await connection.collection('delivery_activity_logs').find({}).toArray();
  const left = await connection.collection('jobs').find({}).toArray();
  const kept = new Set(left.map((row) => `${row['key']}:${row['version']}`));
  const delivered = arrivals.delivered;
  const lost = changes.filter((change) => {
    const name = `${change['delivery_no']}:${change['version']}`;
    return !delivered.has(name) && !kept.has(name);
  });
  const dead = left.filter((row) => row['status'] === 'DEAD').length;
  const metrics = await scrape(pods.filter((pod) => pod.alive));
  const result = {
    hints,
    orders: tally.orders,
    changes: tally.changes,
    rolled_back: tally.rolled_back,
    enqueued: changes.length,
    delivered: delivered.size,
    out_of_order: arrivals.outOfOrder(),
    duplicates_at_most_once: arrivals.duplicates(RETAIL),
    duplicates_at_least_once: arrivals.duplicates(WHOLESALE),
    lost: lost.length,
    dead,
    waiting: left.length - dead,
    seconds: Math.round(seconds * 10) / 10,
  };
  const held =
    result.lost === 0 && result.out_of_order === 0 && result.duplicates_at_most_once === 0 && result.waiting === 0;
  if (json) process.stdout.write(`${JSON.stringify({ ...result, metrics, held })}\n`);
  else {
    console.table(result);
    const ended = Object.entries(metrics.ended).map(([outcome, runs]) => `${runs} ${outcome}`);
    say(`metrics of the living pods: ${metrics.enqueued} enqueued; ended ${ended.join(', ')}; ${metrics.dead} DEAD`);
    say(held ? 'every invariant held' : 'AN INVARIANT BROKE');
  }
  return held;
}

function show({ tally }: Customers, { all }: Arrivals): void {
  if (!json)
    process.stdout.write(`\rorders ${tally.orders}/${orders}  changes ${tally.changes}  arrived ${all.length} `);
}

async function createTopics(brokers: string): Promise<void> {
  const admin = new Kafka({ brokers: [brokers], logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  const topics = [RETAIL, WHOLESALE].map((topic) => ({ topic, numPartitions: 4 }));
  await admin.createTopics({ topics, waitForLeaders: true });
  await admin.disconnect();
}

process.exitCode = (await main()) ? 0 : 1;
