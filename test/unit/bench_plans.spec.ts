/** Reads explain answers of MongoDB and of DocumentDB, and holds what is written to a slow connection in order. */
import { describe, expect, it } from '@jest/globals';
import { once } from 'node:events';
import net from 'node:net';
import type { AddressInfo } from 'node:net';
import { read } from '../../scripts/bench/query_plans.js';
import { delaying } from '../../scripts/bench/round_trip.js';

const executionStats = { totalKeysExamined: 5, totalDocsExamined: 4, nReturned: 3 };
const scan = { stage: 'IXSCAN', indexName: 'due_fast' };

describe('a plan', () => {
  it('names index and stages of a classic plan', () => {
    const winningPlan = { stage: 'LIMIT', inputStage: { stage: 'FETCH', inputStage: scan } };
    expect(read({ queryPlanner: { winningPlan }, executionStats })).toEqual({
      stages: ['LIMIT', 'FETCH', 'IXSCAN'],
      indexes: ['due_fast'],
      sorts: false,
      keys: 5,
      documents: 4,
      returned: 3,
      pages: -1,
    });
  });

  it('looks into the plan of the newer engine, and through branches', () => {
    const queryPlan = { stage: 'SORT', inputStage: { stage: 'OR', inputStages: [scan, { stage: 'COLLSCAN' }] } };
    const plan = read({ queryPlanner: { winningPlan: { queryPlan, slotBasedPlan: {} } }, executionStats });
    expect(plan).toMatchObject({ sorts: true, indexes: ['due_fast'], stages: ['SORT', 'OR', 'IXSCAN', 'COLLSCAN'] });
  });

  it.each(['IDHACK', 'EXPRESS_IXSCAN'])('counts %s as a read by id', (stage) => {
    expect(read({ queryPlanner: { winningPlan: { stage } }, executionStats }).indexes).toEqual(['_id_']);
  });

  it('counts the pages that PostgreSQL touched', () => {
    const pgPlan = JSON.stringify({ Plan: { 'Shared Hit Blocks': 7, 'Shared Read Blocks': 2 } });
    expect(read({ queryPlanner: { winningPlan: scan }, executionStats, pgPlan }).pages).toBe(9);
  });
});

describe('an emulated round trip', () => {
  it('holds what is written to its port, in order, and nothing else', async () => {
    const echo = net.createServer((socket) => socket.pipe(socket)).listen(0, '127.0.0.1');
    await once(echo, 'listening');
    const { port } = echo.address() as AddressInfo;
    try {
      const ms = await delaying(new Map([[port, 30]]), () => roundTrip(port));
      expect(ms).toBeGreaterThanOrEqual(29);
      expect(await delaying(new Map([[port + 1, 30]]), () => roundTrip(port))).toBeLessThan(ms);
      expect(await roundTrip(port)).toBeLessThan(ms);
    } finally {
      echo.close();
    }
  });
});

/** Milliseconds for two writes to come back. */
async function roundTrip(port: number): Promise<number> {
  const socket = net.connect(port, '127.0.0.1');
  await once(socket, 'connect');
  const began = performance.now();
  let said = '';
  const back = new Promise<void>((resolve) => {
    socket.on('data', (chunk: Buffer) => {
      said += chunk.toString();
      if (said.length >= 4) resolve();
    });
  });
  socket.write('ab');
  socket.write('cd');
  await back;
  socket.destroy();
  expect(said).toBe('abcd');
  return performance.now() - began;
}
