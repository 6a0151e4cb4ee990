// Plans of the commands that a piece of code really sends: they are caught on their way out and explained as they are,
// filter, sort, hint and limit, so that nothing has to be written down twice.
import type { Connection, mongo } from 'mongoose';

export type Command = mongo.BSON.Document;

export interface Plan {
  command: string;
  collection: string;
  /** Indexes read, by name; `_id_` for a read by id; empty: the whole collection was scanned. */
  indexes: string[];
  stages: string[];
  /** Sorted in memory, after reading everything that matched. */
  sorts: boolean;
  keys: number;
  documents: number;
  returned: number;
  /** Pages of 8 kB touched, where the server is a PostgreSQL; -1 elsewhere. */
  pages: number;
}

const EXPLAINED = ['find', 'update', 'delete', 'findAndModify', 'aggregate', 'count'] as const;
/** What the driver adds to a command, and an explained one must not carry. */
const ENVELOPE = new Set([
  'lsid',
  '$db',
  '$clusterTime',
  'txnNumber',
  'startTransaction',
  'autocommit',
  'writeConcern',
  'readConcern',
  '$readPreference',
]);

export async function plansOf(connection: Connection, work: () => Promise<unknown>): Promise<Plan[]> {
  const commands = (await caught(connection, work)).map(({ command }) => command);
  const plans: Plan[] = [];
  for (const command of commands) plans.push(await explain(connection, command));
  return plans;
}

/** The commands that look for rows, as `work` sends them. */
export async function caught(
  connection: Connection,
  work: () => Promise<unknown>,
): Promise<{ name: string; command: Command }[]> {
  const commands: { name: string; command: Command }[] = [];
  const listen = ({ commandName: name, command }: mongo.CommandStartedEvent): void => {
    if ((EXPLAINED as readonly string[]).includes(name)) commands.push({ name, command });
  };
  const client = connection.getClient();
  client.on('commandStarted', listen);
  try {
    await work();
  } finally {
    client.off('commandStarted', listen);
  }
  return commands;
}

async function explain(connection: Connection, command: Command): Promise<Plan> {
  const bare = Object.fromEntries(Object.entries(command).filter(([name]) => !ENVELOPE.has(name)));
  // A server explains one statement of a bulk write.
  if (Array.isArray(bare['updates'])) bare['updates'] = [bare['updates'][0] as unknown];
  if (Array.isArray(bare['deletes'])) bare['deletes'] = [bare['deletes'][0] as unknown];
  const reply = await connection.db!.command({ explain: bare, verbosity: 'executionStats' });
  const [name, collection] = Object.entries(command)[0]! as [string, unknown];
  return { command: name, collection: String(collection), ...read(reply) };
}

/** Reads what MongoDB and DocumentDB answer alike. */
export function read(reply: Command): Omit<Plan, 'command' | 'collection'> {
  const planner = (reply['queryPlanner'] ?? reply['stages']?.[0]?.$cursor?.queryPlanner) as Command;
  const stats = (reply['executionStats'] ?? reply['stages']?.[0]?.$cursor?.executionStats) as Command;
  const nodes = flatten((planner['winningPlan']?.queryPlan ?? planner['winningPlan']) as Command);
  const stages = nodes.map(({ stage }) => String(stage));
  const byId = stages.some((stage) => stage === 'IDHACK' || stage === 'EXPRESS_IXSCAN');
  return {
    stages,
    indexes: [
      ...new Set([...nodes.flatMap(({ indexName }) => (indexName as string) ?? []), ...(byId ? ['_id_'] : [])]),
    ],
    sorts: stages.includes('SORT'),
    keys: Number(stats['totalKeysExamined']),
    documents: Number(stats['totalDocsExamined']),
    returned: Number(stats['nReturned']),
    pages: pagesOf(reply['pgPlan']),
  };
}

function flatten(node: Command | undefined): Command[] {
  if (!node) return [];
  const inputs = [node['inputStage'], ...((node['inputStages'] as Command[] | undefined) ?? [])] as Command[];
  return [node, ...inputs.flatMap(flatten)];
}

function pagesOf(pgPlan: unknown): number {
  if (typeof pgPlan !== 'string') return -1;
  const { Plan: plan } = JSON.parse(pgPlan) as { Plan: Record<string, number | undefined> };
  return (plan['Shared Hit Blocks'] ?? -1) + (plan['Shared Read Blocks'] ?? 0);
}
