/** Who this process is: `hostname:pid:uuid8`, new for every process, so that no two terms of ownership share a name. */
import { hostname } from 'node:os';
import type { IdSource } from '../../common/ports/ids.js';

export interface Pod {
  readonly id: string;
  readonly host: string;
}

export const POD = Symbol('sidelane.pod');

export function thisPod(ids: IdSource): Pod {
  const host = hostname();
  return { id: `${host}:${process.pid}:${ids.token().slice(0, 8)}`, host };
}
