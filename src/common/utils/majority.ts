/**
 * Concerns of every collection the engine works on (invariant 14): a claim or an outcome that a failover could roll back
 * would promise nothing. Reads that decide ownership go to the primary, whatever the connection string says. In a
 * transaction the transaction's own concerns hold.
 */
import type { mongo } from 'mongoose';

export const MAJORITY: mongo.CollectionOptions = {
  writeConcern: { w: 'majority' },
  readConcern: { level: 'majority' },
  readPreference: 'primary',
};
