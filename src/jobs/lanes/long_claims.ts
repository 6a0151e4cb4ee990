/** Wins rows for the long lane: reads candidates, plans, claims; see long_lane.worker.ts for what may go wrong between. */
import { Inject, Injectable } from '@nestjs/common';
import type { Types } from 'mongoose';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { crashPoint } from '../../common/ports/crash_points.js';
import { ID_SOURCE, type IdSource } from '../../common/ports/ids.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { freePlaces, heldPlace, ownShare, planClaims } from '../policy/claim_plan.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import type { JobDoc } from '../store/jobs.schema.js';
import * as store from '../store/long_lane.store.js';
import { JobTargetsRegistry, type RegisteredTarget } from '../targets/job_targets.registry.js';
import { LivePods } from './live_pods.js';
import { POD, type Pod } from './pod.js';
import { ReadAhead } from './read_ahead.js';
import { RunningRow } from './running_row.js';
import { TargetPause, type Probe } from './target_pause.js';
import { UnansweredClaims, type OpenClaim } from './unanswered_claims.js';

export interface OpenTarget {
  readonly target: RegisteredTarget;
  /** Rows of it that may start on this pod. */
  readonly places: number;
  /** It rests, and this pod holds the permit for its one probe. */
  readonly probe?: Probe;
}

/** A target that had more due rows than were looked at. */
interface Backlog {
  readonly target: string;
  readonly limit: number;
}

/** Rows a cold check reads to find the targets that have work. */
const COLD_CHECK_LIMIT = 256;

/** Rows one claim looks at, of one target. */
const MOST_CANDIDATES = 1_000;

@Injectable()
export class LongClaims {
  /** The last round won something, or lost it to another pod: there may be more. Busy codes alone are no progress. */
  progressed = false;
  private readonly unanswered = new UnansweredClaims();
  private readonly ahead: ReadAhead;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(ID_SOURCE) private readonly ids: IdSource,
    @Inject(POD) private readonly pod: Pod,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
    @Inject(TargetPause) private readonly pause: TargetPause,
    @Inject(LivePods) private readonly pods: LivePods,
  ) {
    this.ahead = new ReadAhead(clock);
  }

  /** Which of these have due rows? One query, and one more for each deep backlog that hid the targets behind it. */
  async findWork(targets: readonly string[]): Promise<string[]> {
    const withWork: string[] = [];
    let unseen = [...targets];
    while (unseen.length > 0) {
      const now = this.clock.now();
      const { found, full } = await store.findTargetsWithWork(this.collections, unseen, now, COLD_CHECK_LIMIT);
      withWork.push(...found);
      unseen = full ? unseen.filter((name) => !found.includes(name)) : [];
    }
    return withWork;
  }

  /** A round begins: nothing won or lost yet. */
  begin(): void {
    this.progressed = false;
  }

  /** Rows that earlier claims won before their round failed, or after. No command when there are none, else one. */
  async adopt(): Promise<RunningRow[]> {
    const now = this.clock.monotonic();
    const due = this.unanswered.due(now);
    if (due.length === 0) return [];
    const ids = due.flatMap((claim) => claim.ids);
    const rows = await store.readClaimed(this.collections, ids, ...due.map(({ token }) => token));
    this.unanswered.looked(due, now);
    this.unanswered.handOver(rows, now);
    const deadlines = new Map(due.map(({ token, deadline }) => [token, deadline]));
    return rows.flatMap((row) => this.toRunning([row], deadlines.get(row.claim_token!)!));
  }

  /** Claims the most urgent rows of these targets. `stillHot` is told which of them may have more. */
  async claim(open: readonly OpenTarget[], slots: number, stillHot: (target: string) => void): Promise<RunningRow[]> {
    const permitted = await this.takePermits(open);
    const probes = new Map(permitted.flatMap(({ target, probe }) => (probe ? [[target.name, probe]] : [])));
    let claimed: RunningRow[] = [];
    try {
      const limited = permitted.some(({ target }) => target.max_running !== undefined);
      const held = limited ? await store.findRunningCodes(this.collections) : [];
      const running = countByCode(held);
      const backlogs: Backlog[] = [];
      const candidates = await this.readCandidates(permitted, slots, running, stillHot, backlogs);
      const chosen = planClaims(candidates, {
        slots,
        perTarget: new Map(permitted.map(({ target, places }) => [target.name, places])),
        maxRunning: new Map(
          permitted.flatMap(({ target }) => (target.max_running ? [[target.name, target.max_running]] : [])),
        ),
        running,
      });
      const taken = new Set(held.map(({ code, running_code }) => heldPlace(code, running_code)));
      claimed = await this.claimChosen(chosen, taken, probes);
      for (const { target, limit } of backlogs) this.ahead.begin(target, limit, () => this.readDue(target, [], limit));
    } finally {
      // Whatever failed on the way, a permit that no row uses goes back: else nobody probes until it runs out.
      for (const [name, probe] of probes) {
        if (!claimed.some((row) => row.target.name === name)) this.pause.unused(name, probe);
      }
    }
    return claimed;
  }

  /** A resting target lets one row through, and only with the permit for it. */
  private async takePermits(open: readonly OpenTarget[]): Promise<OpenTarget[]> {
    const permitted: OpenTarget[] = [];
    for (const each of open) {
      const gate = await this.pause.pass(each.target.name);
      const probe = gate === 'probe' ? this.pause.heldProbe(each.target.name) : undefined;
      if (gate !== 'closed') permitted.push(probe ? { ...each, places: 1, probe } : each);
    }
    return permitted;
  }

  private async readCandidates(
    open: readonly OpenTarget[],
    slots: number,
    running: ReadonlyMap<string, number>,
    stillHot: (target: string) => void,
    backlogs: Backlog[],
  ): Promise<store.DueRow[]> {
    const reads = open.map(async ({ target, places, probe }) => {
      const most = target.max_running;
      const wanted = Math.min(slots, places);
      const busy = most === undefined ? [] : [...running].filter(([, count]) => count >= most).map(([code]) => code);
      const limit = this.readLimit(target, wanted, slots, probe);
      const plain = most === undefined && !probe;
      const ahead = plain ? await this.ahead.take(target.name, limit) : undefined;
      const rows = ahead ?? (await this.readDue(target.name, busy, limit));
      if (plain && rows.length >= limit) backlogs.push({ target: target.name, limit });
      const mine = plain ? ownShare(rows, wanted, this.pods.share) : rows;
      // What was read ahead may be older than rows that nobody will hint at: only a read of now lets a target go cold.
      if (ahead || rows.length >= limit || rows.length > wanted || mine.length < rows.length) stillHot(target.name);
      return this.causeLast(target.name, mine);
    });
    return (await Promise.all(reads)).flat();
  }

  private readDue(target: string, busy: readonly string[], limit: number): Promise<store.DueRow[]> {
    return store.readDue(this.collections, { target, busy, now: this.clock.now(), limit });
  }

  /** Rows to look at: as many as all pods together want, so that each finds its share among them. */
  private readLimit(target: RegisteredTarget, wanted: number, slots: number, probe: Probe | undefined): number {
    if (probe) return 2; // the probe, and another choice for it
    // A limited target's first rows may all be of one code: look at a few more than can start.
    if (target.max_running !== undefined) return slots;
    return Math.min(wanted * this.pods.share.count, MOST_CANDIDATES);
  }

  /** The row that found its target down is no probe if another can be: it alone may be the trouble. */
  private causeLast(target: string, rows: readonly store.DueRow[]): readonly store.DueRow[] {
    const cause = this.pause.causeOf(target);
    if (cause === undefined || rows.length < 2) return rows;
    return rows.filter((row) => row._id.toHexString() !== cause);
  }

  private async claimChosen(
    chosen: readonly store.DueRow[],
    taken: Set<string>,
    probes: ReadonlyMap<string, Probe>,
  ): Promise<RunningRow[]> {
    const isLimited = (row: store.DueRow): boolean => this.targets.get(row.target)?.max_running !== undefined;
    const claimed = await this.claimBatch(
      chosen.filter((row) => !isLimited(row)),
      probes,
    );
    let busy = 0;
    for (const row of chosen.filter(isLimited)) {
      const won = await this.claimLimited(row, taken, probes);
      if (won === 'busy') busy++;
      else claimed.push(...won);
    }
    // Not before: where a later claim fails, what earlier ones won is returned to nobody.
    this.unanswered.handOver(claimed.map(({ row }) => row), this.clock.monotonic()); // prettier-ignore
    const conflicts = chosen.length - claimed.length;
    this.progressed = claimed.length > 0 || conflicts > busy;
    if (chosen.length > 0) this.events.emit({ type: 'claimed', rows: claimed.length, conflicts });
    return claimed;
  }

  private async claimBatch(rows: readonly store.DueRow[], probes: ReadonlyMap<string, Probe>): Promise<RunningRow[]> {
    if (rows.length === 0) return [];
    const { claim, open } = this.newClaim(rows.map((row) => row._id));
    crashPoint('before_claim');
    const count = await store.claimRows(this.collections, open.ids, claim);
    crashPoint('after_claim');
    const won = await store.readClaimed(this.collections, open.ids, open.token);
    open.answered = won.length >= count; // a row that was claimed and is not seen yet is looked for
    return this.toRunning(won, open.deadline, probes);
  }

  private async claimLimited(
    row: store.DueRow,
    taken: Set<string>,
    probes: ReadonlyMap<string, Probe>,
  ): Promise<RunningRow[] | 'busy'> {
    const most = this.targets.get(row.target)?.max_running ?? 1;
    for (const place of freePlaces(row.code, most, taken)) {
      const { claim, open } = this.newClaim([row._id]);
      crashPoint('before_claim');
      const won = await store.claimExclusive(this.collections, row._id, place, claim);
      crashPoint('after_claim');
      open.answered = true;
      if (won === 'taken') return [];
      taken.add(place);
      if (won !== 'busy') return this.toRunning([won], open.deadline, probes);
    }
    return 'busy';
  }

  private newClaim(ids: readonly Types.ObjectId[]): { claim: store.Claim; open: OpenClaim } {
    const { lease_ms } = this.config.long_lane;
    const deadline = this.clock.monotonic() + lease_ms;
    const now = this.clock.now();
    const token = this.ids.token();
    const open = this.unanswered.add({ ids, token, deadline });
    return { claim: { pod: this.pod.id, token, now, until: new Date(now.getTime() + lease_ms) }, open };
  }

  private toRunning(
    rows: readonly JobDoc[],
    deadline: number,
    probes: ReadonlyMap<string, Probe> = new Map(),
  ): RunningRow[] {
    return rows.map((row) => new RunningRow(row, this.targets.get(row.target)!, deadline, probes.get(row.target)));
  }
}

function countByCode(held: readonly { readonly code: string }[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { code } of held) counts.set(code, (counts.get(code) ?? 0) + 1);
  return counts;
}
