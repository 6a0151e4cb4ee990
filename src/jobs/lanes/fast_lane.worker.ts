/**
 * Schedules the cells of the fast lane: finds those with work, runs them side by side up to each target's
 * `concurrency`, round by round in turn. What a round does is in cell_round.ts; who owns what in
 * partition_lease.service.ts.
 *
 * One cold check, a single query, asks for all idle cells at once; hints after a commit (event `hinted`) only make it
 * faster (invariant 12).
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { Inject, Injectable } from '@nestjs/common';
import { CLOCK, type Clock } from '../../common/ports/clock.js';
import { RunLoop } from '../../common/run_loop.js';
import { within } from '../../common/utils/within.js';
import { JobsEvents, type HintedCell } from '../jobs.events.js';
import { JOBS_CONFIG, type JobsConfig } from '../jobs.options.js';
import { JobLane } from '../jobs.types.js';
import { idleDelayMs } from '../policy/poll_delay.js';
import { JOBS_COLLECTIONS, type JobsCollections } from '../store/collections.js';
import { findCellsWithWork } from '../store/fast_lane.store.js';
import { JobTargetsRegistry, type RegisteredTarget } from '../targets/job_targets.registry.js';
import { Cell } from './cell.js';
import { CellRound, type RoundEnd } from './cell_round.js';
import { PartitionLeaseService } from './partition_lease.service.js';
import { GIVE_UP_MS } from './shutdown.js';
import { TargetPause, type Probe } from './target_pause.js';
import type { OwnedPartition } from './owned_partition.js';

/** Cells of which nothing is known: each of these targets in each of these partitions. */
interface ColdGroup {
  readonly targets: string[];
  readonly partitions: number[];
}

@Injectable()
export class FastLaneWorker {
  private readonly cells = new Map<OwnedPartition, Map<string, Cell>>();
  /** Cells whose term ended with an outcome unwritten. */
  private readonly orphans = new Set<Cell>();
  /** Rounds under way, for the clean stop to wait for. */
  private readonly active = new Set<Promise<RoundEnd>>();
  private readonly runningOf = new Map<string, number>();
  readonly loop: RunLoop;
  private readonly unsubscribe: () => void;
  /** A hint comes in the context of whoever enqueued: rounds must know neither its transaction nor its request. */
  private readonly inOwnContext = AsyncLocalStorage.snapshot();
  private emptyChecks = 0;
  private stopping = false;
  private givenUp = false;
  /** Loops run cells in the background; `runOnce` alone runs each hot cell one round. */
  private background = false;

  constructor(
    @Inject(JOBS_CONFIG) private readonly config: JobsConfig,
    @Inject(JOBS_COLLECTIONS) private readonly collections: JobsCollections,
    @Inject(CLOCK) private readonly clock: Clock,
    @Inject(JobsEvents) private readonly events: JobsEvents,
    @Inject(JobTargetsRegistry) private readonly targets: JobTargetsRegistry,
    @Inject(PartitionLeaseService) private readonly leases: PartitionLeaseService,
    @Inject(TargetPause) private readonly pause: TargetPause,
    @Inject(CellRound) private readonly rounds: CellRound,
  ) {
    this.loop = new RunLoop({
      name: 'fast_lane',
      clock,
      step: () => this.check(),
      errorDelayMs: config.fast_lane.error_poll_ms,
      onError: (loop, error) => events.emit({ type: 'loop_failed', loop, error }),
    });
    this.unsubscribe = events.on((event) => {
      if (event.type === 'hinted') this.hinted(event.cells);
      if (event.type === 'partitions_taken' || event.type === 'target_resumed') this.loop.wake();
      if (event.type === 'target_ramping' && this.background) this.pump();
    });
  }

  start(): void {
    this.background = true;
    this.loop.start();
  }

  /**
   * Starts nothing more and waits, up to `graceMs`, for what runs to end with its outcome written. Then signals tell the
   * handlers to give up. True when everything had ended by itself. What runs on stays marked: its partition is not given
   * back, and the next owner judges it.
   */
  async stop(graceMs: number): Promise<boolean> {
    this.stopping = true;
    this.unsubscribe();
    const drained = this.drain();
    if (await within(this.clock, graceMs, drained)) return true;
    this.rounds.callOff('the pod stops');
    await within(this.clock, GIVE_UP_MS, drained);
    this.givenUp = true;
    return false;
  }

  /** One cold check, then one round of every hot cell. Answers how many rounds found work; drives tests and nothing else. */
  async runOnce(): Promise<number> {
    await this.coldCheck();
    const before = this.background;
    this.background = false;
    let worked = 0;
    for (const cell of this.hotCells()) if ((await this.round(cell)) === 'again') worked++;
    this.background = before;
    return worked;
  }

  private hinted(cells: readonly HintedCell[] | 'all'): void {
    if (cells !== 'all') return cells.forEach(({ target, partition }) => this.hint(target, partition));
    this.emptyChecks = 0;
    this.loop.wake();
  }

  /** Rows were committed for this cell: read it now. */
  hint(target: string, partition: number): void {
    const owned = this.leases.get(partition);
    const known = this.targets.get(target);
    if (!owned || owned.lost || known?.lane !== JobLane.fast) return;
    this.cellOf(owned, known).hot = true;
    this.emptyChecks = 0;
    if (this.background) this.pump();
  }

  private async drain(): Promise<void> {
    await this.loop.stop();
    while (this.active.size > 0) await Promise.all(this.active);
    // A database that comes back within the grace must still hear what became of the rows.
    for (let left = await this.writeKeptOutcomes(); left > 0 && !this.givenUp; left = await this.writeKeptOutcomes()) {
      await new Promise<void>((resolve) => void this.clock.after(this.config.fast_lane.error_poll_ms, resolve));
    }
  }

  private async check(): Promise<number> {
    const found = await this.coldCheck();
    this.emptyChecks = found || this.hotCells().length > 0 ? 0 : this.emptyChecks + 1;
    this.pump();
    const idle = idleDelayMs(Math.max(0, this.emptyChecks - 1), this.config.fast_lane.idle_poll_ms);
    return Math.min(idle, this.pause.nextProbeMs(JobLane.fast) ?? idle);
  }

  /** Makes the cells hot that have due rows. Cells of paused targets are not looked at, but for a probe that is due. */
  private async coldCheck(): Promise<boolean> {
    this.dropLostCells();
    await this.writeOrphans();
    const open = this.targets.inLane(JobLane.fast).filter((target) => this.pause.look(target.name) !== 'closed');
    let any = false;
    // A deep cell hides those behind it: found cells are hot, so asking again looks further. Each turn finds a new one.
    for (let again = true; again;) {
      again = false;
      for (const group of this.coldGroups(open)) {
        const { found, full } = await this.findWork(group);
        any ||= found;
        again ||= found && full;
      }
    }
    return any;
  }

  private async findWork(group: ColdGroup): Promise<{ found: boolean; full: boolean }> {
    const limit = this.config.fast_lane.cold_check_limit;
    const { found, full } = await findCellsWithWork(this.collections, group, this.clock.now(), limit);
    let fresh = false;
    for (const { target, partition } of found) {
      const owned = this.leases.get(partition);
      const known = this.targets.get(target);
      if (!owned || !known) continue;
      this.cellOf(owned, known).hot = true;
      fresh = true;
    }
    return { found: fresh, full };
  }

  /** Cold cells, targets with the same cold partitions together: nearly always one group. */
  private coldGroups(targets: readonly RegisteredTarget[]): ColdGroup[] {
    const readable = this.leases.readable();
    const groups = new Map<string, ColdGroup>();
    for (const target of targets) {
      const cold = readable.filter((owned) => !this.cells.get(owned)?.get(target.name)?.hot);
      if (cold.length === 0) continue;
      const partitions = cold.map((owned) => owned.partition);
      const group = groups.get(partitions.join()) ?? { targets: [], partitions };
      group.targets.push(target.name);
      groups.set(partitions.join(), group);
    }
    return [...groups.values()];
  }

  private hotCells(): Cell[] {
    return [...this.cells.values()].flatMap((cells) => [...cells.values()].filter((cell) => cell.hot));
  }

  /** Starts rounds of hot cells while their target has a free place. Cells take turns: the map's order is the queue. */
  private pump(): void {
    for (const cell of this.hotCells()) {
      if (this.stopping) return;
      const { name, concurrency } = cell.target;
      if (cell.running || (!cell.kept && (this.pause.look(name) === 'closed' || this.rounds.mustWait(cell)))) continue;
      if (!cell.kept && (this.runningOf.get(name) ?? 0) >= Math.min(concurrency, this.pause.allowance(name))) continue;
      void this.inOwnContext(() => this.round(cell)).then((end) => this.afterRound(cell, end));
    }
  }

  private afterRound(cell: Cell, end: RoundEnd): void {
    const cells = this.cells.get(cell.owned);
    if (cells?.delete(cell.target.name)) cells.set(cell.target.name, cell); // to the end of the queue
    if (cells && this.cells.delete(cell.owned)) this.cells.set(cell.owned, cells);
    if (end !== 'stopped') this.pump();
  }

  private round(cell: Cell): Promise<RoundEnd> {
    const run = this.guardedRound(cell).then(async (end) => {
      // Only now: the cell's place is free, and what it found out about its target is still waited for by a clean stop.
      await this.pause.written(cell.target.name);
      if (cell.owned.releasing) await this.giveBack();
      return end;
    });
    this.active.add(run);
    return run.finally(() => this.active.delete(run));
  }

  /** Others wait for what ran dry here. Where the database does not answer now, the next heartbeat tries again. */
  private giveBack(): Promise<void> {
    return this.leases
      .releaseDry()
      .catch((error: unknown) => this.events.emit({ type: 'loop_failed', loop: 'fast_lane', error }));
  }

  /** One round; never throws. A cell stays hot after an error and is tried again with the next check. */
  private async guardedRound(cell: Cell): Promise<RoundEnd> {
    const { name } = cell.target;
    if (cell.owned.lost || cell.running) return 'stopped';
    if (cell.kept) return this.writeKept(cell);
    // Before the gate, which may cost a command: nobody else may start this cell meanwhile.
    cell.running = true;
    cell.owned.running++;
    this.runningOf.set(name, (this.runningOf.get(name) ?? 0) + 1);
    let probe: Probe | undefined;
    let end: RoundEnd = 'stopped';
    try {
      const gate = await this.pause.pass(name);
      if (gate === 'closed') return 'stopped';
      if (gate === 'probe') probe = this.pause.heldProbe(name);
      // A hint that comes while the round runs must survive its "empty".
      cell.hot = false;
      end = await this.rounds.run(cell, { probe, stopping: () => this.stopping });
      if (end !== 'empty') cell.hot = true;
    } catch (error) {
      cell.hot = true;
      this.events.emit({ type: 'round_failed', ...cell.id, error });
    } finally {
      if (probe) this.pause.unused(name, probe);
      cell.running = false;
      cell.owned.running--;
      this.runningOf.set(name, this.runningOf.get(name)! - 1);
    }
    return end;
  }

  /**
   * What became of rows is told whatever their target does meanwhile: a pause may last for days, and if we died in it the
   * next owner would judge them as unknown. Takes no place of the target: nothing is sent.
   */
  private async writeKept(cell: Cell): Promise<RoundEnd> {
    cell.running = true;
    cell.owned.running++;
    try {
      await this.rounds.writeKept(cell);
      return 'again';
    } catch (error) {
      this.events.emit({ type: 'round_failed', ...cell.id, error });
      return 'stopped';
    } finally {
      cell.running = false;
      cell.owned.running--;
    }
  }

  private cellOf(owned: OwnedPartition, target: RegisteredTarget): Cell {
    const cells = this.cells.get(owned) ?? new Map<string, Cell>();
    this.cells.set(owned, cells);
    const cell = cells.get(target.name) ?? new Cell(target, owned, this.config.fast_lane.batch_size);
    cells.set(target.name, cell);
    return cell;
  }

  private dropLostCells(): void {
    for (const [owned, cells] of this.cells) {
      if (!owned.lost || owned.running > 0) continue;
      for (const cell of cells.values()) if (cell.kept) this.orphans.add(cell);
      this.cells.delete(owned);
    }
  }

  private async writeOrphans(): Promise<void> {
    for (const cell of this.orphans) {
      await this.rounds.writeKept(cell);
      this.orphans.delete(cell);
    }
  }

  /** What cannot be written until the connections close is judged by the next owner. Answers how many are left. */
  private async writeKeptOutcomes(): Promise<number> {
    const kept = [...this.cells.values()].flatMap((cells) => [...cells.values()].filter((cell) => cell.kept));
    let left = 0;
    for (const cell of new Set([...kept, ...this.orphans])) {
      await this.rounds.writeKept(cell).catch((error: unknown) => {
        left++;
        this.events.emit({ type: 'round_failed', ...cell.id, error });
      });
    }
    return left;
  }
}
