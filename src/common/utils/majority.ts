/**
 * Concerns of every collection the engine works on (invariant 14): a claim or an outcome that a failover could roll back
 * would promise nothing. Reads that decide ownership go to the primary, whatever the connection string says. In a
 * transaction the transaction's own concerns hold.
 */
import type { mongo } from 'mongoose';
import { answeredWithin } from './answers.js';

const MAJORITY: mongo.CollectionOptions = {
  writeConcern: { w: 'majority' },
  readConcern: { level: 'majority' },
  readPreference: 'primary',
};

/** Opens collections the engine works on: majority concerns, and no command is waited for longer than `timeout_ms`. */
export function majorityCollections(
  db: mongo.Db,
  timeout_ms: number,
): <Doc extends mongo.Document>(name: string) => mongo.Collection<Doc> {
  return <Doc extends mongo.Document>(name: string) => answeredWithin(timeout_ms, db.collection<Doc>(name, MAJORITY));
}
