/**
 * Which targets rest because nothing reached them, or because an admin said so (invariant 6). Nothing of a resting
 * target runs but one probe of one row: over all pods one per interval, by a permit on the shared row (`job_targets`).
 * Resting spends no attempt, however long it lasts. An admin's pause is never probed and never touched from here.
 *
 * The database decides; this pod works from a copy. The copy changes at once with what this pod finds out, and follows
 * the row once per heartbeat (`refresh`), so that a pause found by one pod stops the others within one heartbeat. What
 * was found out is written in the background: a database that is away never ends a run from here and never rejects.
 *
 * Runs that began before a pause prove nothing: only a success of a run that began as the probe, after the last finding
 * that the target is down, opens it (fences: store/target_pause.store.ts). Then its rows come back in a ramp.
 */
import { Inject, Injectable, type OnModuleInit } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { ID_SOURCE, type IdSource } from '../../common/ports/ids.js';
import { JobsEvents } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JobLane } from '../jobs.types.js';
import { historyErrorText } from '../policy/failure_text.js';
import * as rules from '../policy/pause_rules.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import type { TargetDoc } from '../store/jobs.schema.js';
import * as store from '../store/target_pause.store.js';
import { JobTargetsRegistry } from '../targets/job_targets.registry.js';
import { fromRow, PauseCopy, samePause, type Probe } from './pause_copy.js';
import { POD, type Pod } from './pod.js';
import { UnknownEnds } from './unknown_ends.js';

export type Gate = rules.Gate;
export type { Probe } from './pause_copy.js';

/** How a run got past the gate. */
export type Passed = 'open' | Probe;

@Injectable()
export class TargetPause implements OnModuleInit {
  private readonly copies = new Map<string, PauseCopy>();
  private readonly unknownEnds = new UnknownEnds();
  /** The shared rows were read at least once: before that nothing may run. */
  private known = false;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(ID_SOURCE) private readonly ids: IdSource,
    @Inject(POD) private readonly pod: Pod,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
  ) {}

  /** Pauses outlive restarts: read before the first round. A database that is away now is asked again by `pass`. */
  async onModuleInit(): Promise<void> {
    if (this.config.workers !== 'off') await this.refresh().catch(this.report);
  }

  /** Follows the shared rows: once per heartbeat, one query. Throws what the database throws; the copy then stays as it is. */
  async refresh(): Promise<void> {
    // Not awaited: a row that is locked by somebody's transaction must not hold up the heartbeat that renews the leases.
    for (const copy of this.copies.values()) void copy.flush();
    const asked = new Map([...this.copies].map(([target, { changes }]) => [target, changes]));
    const rows = new Map((await store.listTargets(this.collections)).map((row) => [row._id, row]));
    this.known = true;
    for (const target of new Set([...rows.keys(), ...this.copies.keys()])) {
      const copy = this.copyOf(target);
      // What this pod found out, or asked for, since the question is newer than the answer.
      if (copy.asking || !copy.written || copy.changes !== (asked.get(target) ?? 0)) continue;
      this.follow(copy, rows.get(target));
    }
  }

  /**
   * May a run of this target start now? `probe` hands out the one permit, over all pods: give it back by `up`, `down` or
   * `unused`. No command while the target is open. Never rejects: a database that is away means `closed`.
   */
  async pass(target: string): Promise<Gate> {
    if (!this.known) await this.refresh().catch(this.report);
    if (!this.known) return 'closed';
    const gate = this.look(target);
    if (gate !== 'probe') return gate;
    const copy = this.copyOf(target);
    copy.asking = true;
    try {
      return await this.askForPermit(copy);
    } catch (error) {
      this.report(error);
      return 'closed';
    } finally {
      copy.asking = false;
    }
  }

  /** The same without taking the permit, from the copy alone. */
  look(target: string): Gate {
    const copy = this.copies.get(target);
    return copy?.asking ? 'closed' : rules.gateOf(copy?.pause, this.nowMs());
  }

  /** The permit this pod got last; ask right after `pass` answered `probe`. */
  heldProbe(target: string): Probe | undefined {
    return this.copies.get(target)?.held;
  }

  /** Row that found the target down: the probe takes another one where it can. */
  causeOf(target: string): string | undefined {
    return this.copies.get(target)?.pause?.cause;
  }

  /** How many rows of it may run at once: one while it rests (the probe), a few after it came back, else `Infinity`. */
  allowance(target: string): number {
    const copy = this.copies.get(target);
    if (!copy || (!copy.pause && !copy.ramp)) return Infinity;
    if (copy.pause || !copy.ramp) return 1;
    this.setRamp(copy, rules.rampAfterTime(copy.ramp, this.nowMs(), this.config.pause.probe_ms));
    return this.placesOf(copy);
  }

  /** Milliseconds until a probe comes due; nothing when none is to come, or when it is due already. */
  nextProbeMs(lane?: JobLane): number | undefined {
    const now = this.nowMs();
    const waits = [...this.copies.values()]
      .filter(({ pause, target }) => pause && (!lane || this.targets.get(target)?.lane === lane))
      .map(({ pause }) => rules.nextProbeAt(pause!) - now)
      .filter((wait) => wait > 0 && wait < Infinity);
    return waits.length === 0 ? undefined : Math.min(...waits);
  }

  /** Nothing reached the target. `passed` by default: as the probe, if this pod holds its permit. */
  down(target: string, row: string, error: unknown, passed: Passed = this.heldProbe(target) ?? 'open'): void {
    const copy = this.copyOf(target);
    const began = copy.pause?.token;
    // It rests already. Only its probe may say more, and only of the finding that it began under.
    if (copy.pause && (passed === 'open' || passed.token !== began)) return;
    const ms = rules.restMs(this.config.pause.probe_ms, (error as { retry_after_ms?: unknown } | null)?.retry_after_ms);
    const now = this.clock.now();
    const reason = historyErrorText(error);
    const probe_at = new Date(now.getTime() + ms);
    const finding = { token: this.ids.token(), reason, cause: row, now, probe_at };
    copy.set({ by: 'engine', reason, token: finding.token, cause: row, probe_at: probe_at.getTime(), probe_until: 0 });
    this.events.emit({ type: 'target_paused', target, by: 'engine', reason, ms });
    this.write(copy, () =>
      began === undefined
        ? store.pauseByEngine(this.collections, target, finding)
        : store.extendPause(this.collections, target, began, finding),
    );
  }

  /** The target answered. Writes nothing, unless this run was the probe of a resting one. */
  up(target: string, passed: Passed = this.heldProbe(target) ?? 'open'): void {
    this.unknownEnds.answered(target);
    const copy = this.copies.get(target);
    if (!copy) return;
    if (!copy.pause) {
      this.widen(copy);
      return;
    }
    if (passed === 'open' || passed.token !== copy.pause.token) return;
    this.open(copy);
    const opened = { reason: 'a probe was answered', now: this.clock.now() };
    this.write(copy, () => store.openAfterProbe(this.collections, target, passed.token, opened));
  }

  /** The probe found nothing to run: another cell or pod may try. Does nothing after `up` or `down`. */
  unused(target: string, probe: Probe | undefined = this.heldProbe(target)): void {
    const copy = this.copies.get(target);
    if (!probe || !copy?.pause || copy.held !== probe) return;
    copy.held = undefined;
    copy.set({ ...copy.pause, probe_until: 0 });
    this.write(copy, () => store.giveBackProbe(this.collections, target, { ...probe, pod: this.pod.id }));
  }

  /** Resolves when what this pod found out is written, or could not be. Never rejects. */
  async written(target?: string): Promise<void> {
    if (target !== undefined) await this.copies.get(target)?.flush();
    else await Promise.all([...this.copies.values()].map((copy) => copy.flush()));
  }

  /** Remembers that a run ended unknown; true when it had before and the target has served others since. */
  endedUnknownAgain(target: string, row: string): boolean {
    return this.unknownEnds.again(target, row);
  }

  /** The row ended well. */
  forget(row: { _id: { toHexString(): string } }): void {
    if (!this.unknownEnds.empty) this.unknownEnds.forget(row._id.toHexString());
  }

  private async askForPermit(copy: PauseCopy): Promise<Gate> {
    if (!copy.written) {
      void copy.flush();
      return 'closed'; // without the row there is no permit
    }
    const { probe_ms } = this.config.pause;
    const send_ms = this.config.fast_lane.timeout_ms + this.config.lease.margin_ms;
    const now = this.clock.now();
    const until = new Date(now.getTime() + rules.permitMs({ probe_ms, send_ms }));
    const row = await store.takeProbe(this.collections, copy.target, { pod: this.pod.id, now, until });
    if (row) {
      copy.set(fromRow(row));
      copy.held = { token: row.token!, until };
      this.events.emit({ type: 'target_probed', target: copy.target });
      return 'probe';
    }
    this.follow(copy, await store.readTarget(this.collections, copy.target));
    return copy.pause ? 'closed' : 'open';
  }

  /** Sends what was found out. Where the row had moved on meanwhile, the copy follows it. */
  private write(copy: PauseCopy, send: () => Promise<store.Change>): void {
    copy.write(async () => {
      if ((await send()) === 'changed') return;
      const row = await store.readTarget(this.collections, copy.target);
      if (copy.lastWrite) this.follow(copy, row);
    });
  }

  private follow(copy: PauseCopy, row: TargetDoc | undefined): void {
    const { target, pause: before } = copy;
    const after = fromRow(row);
    if (samePause(before, after)) return;
    if (!after) return this.open(copy);
    copy.set(after);
    if (before?.by === after.by) return;
    const ms = after.by === 'engine' ? Math.max(0, after.probe_at - this.nowMs()) : undefined;
    this.events.emit({
      type: 'target_paused',
      target,
      by: after.by,
      reason: after.reason,
      ...(ms !== undefined && { ms }),
    });
  }

  private open(copy: PauseCopy): void {
    copy.set(undefined);
    this.setRamp(copy, rules.startRamp(this.nowMs()));
    this.events.emit({ type: 'target_resumed', target: copy.target });
  }

  /** One more answer of a target that came back: whoever has rows of it waiting is told when more may run. */
  private widen(copy: PauseCopy): void {
    if (!copy.ramp) return;
    const before = copy.ramp.places;
    this.setRamp(copy, rules.rampAfterAnswer(copy.ramp, this.nowMs()));
    const places = this.placesOf(copy);
    if (places > before) this.events.emit({ type: 'target_ramping', target: copy.target, places });
  }

  private setRamp(copy: PauseCopy, ramp: rules.Ramp): void {
    copy.ramp = ramp.places >= this.fullPlaces(copy.target) ? undefined : ramp;
  }

  private placesOf(copy: PauseCopy): number {
    return copy.ramp?.places ?? Infinity;
  }

  /** Rows of the target that this pod runs at once when nothing holds them back. */
  private fullPlaces(name: string): number {
    const target = this.targets.get(name);
    if (!target) return 1;
    return target.lane === JobLane.fast ? target.concurrency * target.max_in_flight : target.concurrency;
  }

  private copyOf(target: string): PauseCopy {
    const copy = this.copies.get(target) ?? new PauseCopy(target, this.report);
    this.copies.set(target, copy);
    return copy;
  }

  private nowMs(): number {
    return this.clock.now().getTime();
  }

  private readonly report = (error: unknown): void =>
    this.events.emit({ type: 'loop_failed', loop: 'target_pause', error });
}
