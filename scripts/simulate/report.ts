// A simulation as text for a terminal. Pure.
import type { LeaseReport, OverTime, PhaseReport, Rate } from './leases.js';

export function asText(report: LeaseReport): string {
  const { pods, partitions, targets, seed, lease, two_owners, settled } = report;
  return [
    `leases: ${pods} pods, ${partitions} partitions, ${targets} rows of job_targets, seed ${seed}`,
    `lease ${lease.ttl_ms} ms, heartbeat ${lease.heartbeat_ms} ms, a pod counts as live for ${lease.worker_ttl_ms} ms`,
    ...report.phases.flatMap(phaseLines),
    `two owners of one partition: ${two_owners}; all served and shares even at the end of each phase: ${settled ? 'yes' : 'NO'}`,
  ].join('\n');
}

function phaseLines(phase: PhaseReport): string[] {
  const served =
    phase.ms_until_all_served === null ? 'not in this phase' : `after ${seconds(phase.ms_until_all_served)}`;
  return [
    `== ${phase.phase}: ${phase.pods} pods at its end, ${phase.seconds} s`,
    `   commands/s ${rate(phase.commands_per_s)}; documents/s written ${rate(phase.documents_written_per_s)}, examined ${rate(phase.documents_examined_per_s)}, returned ${rate(phase.documents_returned_per_s)}`,
    `   taken ${phase.taken}, given back ${phase.given_back}, lost ${phase.lost}, taken in vain ${phase.taken_in_vain}; ${phase.moving_heartbeats} of ${phase.heartbeats} heartbeats moved something`,
    `   all served ${served}, settled after ${seconds(phase.ms_until_settled)} (${phase.rebalancing_rounds} heartbeat intervals), shares ${phase.shares.least} .. ${phase.shares.most}`,
    `   unserved, by second: ${curve(phase.unserved)}`,
    `   without an owner in the database: ${curve(phase.without_owner)}`,
  ];
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`;
const rate = ({ mean, peak }: Rate): string => `${mean} (peak ${peak})`;
const curve = (points: OverTime): string => points.map(([second, count]) => `${second}:${count}`).join(' ');
