/**
 * Narrowing beyond an index: rows of a range, in the order of `_id`, of which only the first `look` are looked at, however
 * few of them match. Whoever asks is told where the look ended, and goes on behind it. Promises: no command examines more
 * than `look` rows and their edge; must never be asked without a hint for a range that an index serves in this order.
 */
import { mongo } from 'mongoose';
import { oneBatch } from '../../common/utils/one_batch.js';
import type { JobsCollections } from './collections.js';
import type { JobDoc } from './jobs.schema.js';

export interface Look {
  /** What an index serves in the order of `_id`. */
  readonly range: mongo.Filter<JobDoc>;
  readonly hint: string;
  readonly order: 1 | -1;
  /** Only behind this row, in the order of the look. */
  readonly behind?: mongo.ObjectId | undefined;
  /** Most rows of the range that one call looks at. */
  readonly look: number;
}

export interface Found<T> {
  readonly rows: T[];
  /** Behind this one others may match; missing: there is nothing behind. */
  readonly looked_to?: mongo.ObjectId;
}

/** Rows of the range that match. Without anything to match the index alone finds them. */
export async function findWithin<T extends { _id: mongo.ObjectId }>(
  { jobs }: JobsCollections,
  look: Look,
  matching: mongo.Filter<JobDoc>,
  { skip = 0, limit, projection }: { skip?: number; limit: number; projection: mongo.BSON.Document },
): Promise<Found<T>> {
  const { hint, order } = look;
  const narrowed = Object.keys(matching).length > 0;
  const found = narrowed
    ? jobs.aggregate<T>(
        [
          ...windowOf(look),
          { $match: matching },
          ...(skip > 0 ? [{ $skip: skip }] : []),
          { $limit: limit },
          { $project: projection },
        ],
        { hint },
      )
    : jobs.find<T>(rangeOf(look), { projection, sort: { _id: order }, skip, ...oneBatch(limit), hint });
  const rows = await found.toArray();
  if (rows.length === limit) return { rows, looked_to: rows.at(-1)!._id };
  return narrowed ? { rows, ...(await edgeOf(jobs, look)) } : { rows };
}

/** How many rows of one look match: in one command, which counts what it looked at as well. */
export async function countWithin(
  { jobs }: JobsCollections,
  look: Look,
  matching: mongo.Filter<JobDoc>,
): Promise<{ count: number; looked_to?: mongo.ObjectId }> {
  const conditions = asExpressions(matching);
  const pipeline = [
    ...windowOf(look),
    {
      $group: {
        _id: null,
        looked_at: { $sum: 1 },
        edge: look.order === 1 ? { $max: '$_id' } : { $min: '$_id' },
        count: { $sum: conditions.length > 0 ? { $cond: [{ $and: conditions }, 1, 0] } : 1 },
      },
    },
  ];
  const [found] = await jobs
    .aggregate<{ looked_at: number; edge: mongo.ObjectId; count: number }>(pipeline, { hint: look.hint })
    .toArray();
  if (!found) return { count: 0 };
  return { count: found.count, ...(found.looked_at === look.look && { looked_to: found.edge }) };
}

/** `{ field: { $operator: value } }` as expressions. A missing field matches none of them, as in a filter. */
function asExpressions(matching: mongo.Filter<JobDoc>): object[] {
  return Object.entries(matching).flatMap(([name, operators]) => [
    { $gt: [`$${name}`, null] },
    ...Object.entries(operators as object).map(([operator, value]) => ({
      [operator]: [`$${name}`, { $literal: value as unknown }],
    })),
  ]);
}

function windowOf(look: Look): object[] {
  return [{ $match: rangeOf(look) }, { $sort: { _id: look.order } }, { $limit: look.look }];
}

const FIRST = new mongo.ObjectId('0'.repeat(24));
const LAST = new mongo.ObjectId('f'.repeat(24));

/** Always with a bound on `_id`: without one some planners do not see that the index is in the order asked for. */
function rangeOf({ range, order, behind }: Look): mongo.Filter<JobDoc> {
  return { ...range, _id: order === 1 ? { $gt: behind ?? FIRST } : { $lt: behind ?? LAST } };
}

/** The last row of a look, if it was a full one. Answered from the index alone. */
async function edgeOf(jobs: JobsCollections['jobs'], look: Look): Promise<{ looked_to?: mongo.ObjectId }> {
  const { order, hint } = look;
  const options = { projection: { _id: 1 }, sort: { _id: order }, skip: look.look - 1, hint } as const;
  const [edge] = await jobs.find(rangeOf(look), { ...options, ...oneBatch(1) }).toArray();
  return edge ? { looked_to: edge._id } : {};
}
