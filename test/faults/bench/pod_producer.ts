/**
 * The business of a pod: small transactions, each of which writes what it produced beside the rows it enqueues. Some are
 * called off after their enqueue. Which rows, in which order, follows from the pod's seed. Targets are dealt like cards:
 * none of them is left out by chance.
 */
import { inTransaction, type Tx } from '../../../src/index.js';
import { machineMs } from './ledger.js';
import type { Surroundings } from './pod_targets.js';
import {
  commandMs,
  EXCLUSIVE_CODES,
  FAST_TARGETS,
  isBatch,
  isLossy,
  KAFKA_TARGETS,
  LONG_TARGETS,
  LOSSY_TARGET,
  NEW_TARGETS,
  type Behaviour,
  type PlannedRow,
  type PodSettings,
} from './pod_settings.js';
import { Deck, SeededRandom } from './random.js';

const BEHAVIOURS: readonly (readonly [Behaviour, number])[] = [
  ['fail_once', 0.08],
  ['fail_twice', 0.02],
  ['away_once', 0.02],
  ['slow', 0.06],
  ['complete', 0.05],
  ['reject', 0.02],
];
const KEYS = 4;
/** Share of transactions. */
const BURSTS = 0.15;

class CalledOff extends Error {}

const targetsOf = ({ version, kafka, redis_url, targets }: PodSettings): readonly string[] =>
  targets ?? [
    ...FAST_TARGETS,
    ...LONG_TARGETS,
    ...(version >= 2 ? NEW_TARGETS : []),
    ...(kafka ? KAFKA_TARGETS : []),
    ...(redis_url ? [LOSSY_TARGET, LOSSY_TARGET, LOSSY_TARGET] : []),
  ];

export class BenchProducer {
  private readonly random: SeededRandom;
  private count = 0;
  private readonly targets: Deck<string>;
  private perSecond: number;
  private running: Promise<void> | undefined;

  constructor(private readonly pod: Surroundings) {
    this.random = new SeededRandom(`${pod.settings.seed} ${pod.settings.name}`);
    this.perSecond = pod.settings.produce_per_s;
    this.targets = new Deck(this.random, targetsOf(pod.settings));
  }

  set(perSecond: number): void {
    this.perSecond = perSecond;
    this.start();
  }

  start(): void {
    if (this.perSecond > 0) this.running ??= this.loop().finally(() => (this.running = undefined));
  }

  async stop(): Promise<void> {
    this.perSecond = 0;
    await this.running;
  }

  private async loop(): Promise<void> {
    while (this.perSecond > 0) {
      const next = machineMs() + 1000 / this.perSecond;
      const rows = this.plan();
      const abort = this.random.chance(0.05);
      if (abort) this.targets.putBack(rows.map(({ target }) => target));
      await this.enqueue(rows, abort).catch(() => undefined); // a business call that failed: its ledger tells the truth
      const wait = next - machineMs();
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  /** One business transaction. */
  async enqueue(rows: readonly PlannedRow[], abort = false): Promise<void> {
    const { connection, collection, sideEffect, ledger, settings } = this.pod;
    const names = rows.map(({ n }) => n);
    const began = machineMs();
    const told = (error?: string): void =>
      ledger.write({ what: 'business', ms: Math.round(machineMs() - began), ...(error && { error }) });
    try {
      const work = async (tx: Tx): Promise<void> => {
        const items = [];
        const docs = [];
        for (const { key, ...row } of rows) {
          const version = key === undefined ? 0 : await sideEffect.nextVersion(key, tx);
          const { n, target, code, delay_ms, behaviour } = row;
          docs.push({ n, target, key, version, behaviour });
          const options = {
            dedupe_key: n,
            version,
            ...(key && { key }),
            ...(code && { code }),
            ...(delay_ms && { delay_ms }),
          };
          items.push({ target, payload: { n, behaviour, version, ...(key && { key }) }, ...options });
        }
        await collection('produced').insertMany(docs, { session: tx.session });
        await sideEffect.enqueueMany(items, tx);
        tx.afterCommit(() => ledger.write({ what: 'hook', rows: names }));
        if (abort) throw new CalledOff();
      };
      // A clean stop waits for the business under way, which a commit that the driver lost must not hold up.
      await inTransaction(connection, work, { endsWithinMs: commandMs(settings) });
      told();
    } catch (error) {
      if (error instanceof CalledOff) ledger.write({ what: 'aborted', rows: names });
      else told(String(error));
      throw error;
    }
  }

  private plan(): PlannedRow[] {
    const rows = Array.from({ length: this.random.int(1, 4) }, () => this.planRow());
    return this.random.chance(BURSTS) ? this.asBurst(rows) : rows;
  }

  /** All of one key, and the first one fails: its followers are due, and must wait for it. */
  private asBurst(rows: PlannedRow[]): PlannedRow[] {
    const head = rows.find(({ key, target }) => key !== undefined && target.startsWith('fast:'));
    if (!head) return rows;
    this.targets.putBack(rows.flatMap(({ target }) => (target === head.target ? [] : target)));
    return rows.map(({ n }, index) => {
      const behaviour = index === 0 ? this.random.pick(['fail_once', 'fail_twice'] as const) : 'ok';
      return { n, target: head.target, key: head.key!, behaviour };
    });
  }

  private planRow(): PlannedRow {
    const { name } = this.pod.settings;
    const { random } = this;
    const n = `${name}-${++this.count}`;
    const target = this.targets.deal();
    let behaviour = this.behaviour();
    // A batch cannot, a lossy job leaves no row, and an exclusive code is free while its handler is still on its way out.
    if (behaviour === 'complete' && (isBatch(target) || ['long:exclusive', LOSSY_TARGET].includes(target)))
      behaviour = 'ok';
    const keyed = !target.startsWith('long:') && random.chance(0.7);
    const key = `${target} ${name} ${random.int(1, KEYS)}`;
    const code = random.pick(EXCLUSIVE_CODES);
    const delayed = random.chance(0.08) && !isLossy(target);
    return {
      n,
      target,
      behaviour,
      ...(keyed && { key }),
      ...(target === 'long:exclusive' && { code }),
      ...(delayed && { delay_ms: 200 }),
    };
  }

  private behaviour(): Behaviour {
    let draw = this.random.next();
    for (const [behaviour, usual] of BEHAVIOURS) {
      const share = this.pod.settings.behaviours?.[behaviour] ?? usual;
      if (draw < share) return behaviour;
      draw -= share;
    }
    return 'ok';
  }
}
