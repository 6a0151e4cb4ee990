// Promises: PostgreSQL's plan in MongoDB's words: stages IXSCAN, COLLSCAN, FETCH, SORT, LIMIT, GROUP with the index's name
// and the rows and keys read. Must never claim an index scan that reads the whole collection: the extension finds all
// documents of a collection through its primary key, and that is a COLLSCAN.
import type { Document } from './bson.codec.js';

export interface PlanNode {
  'Node Type': string;
  'Custom Plan Provider'?: string;
  'Index Name'?: string;
  'Index Cond'?: string;
  'Scan Direction'?: string;
  'Actual Rows'?: number;
  'Actual Loops'?: number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  IndexDetails?: IndexDetail[];
  Plans?: PlanNode[];
}
interface IndexDetail {
  indexName: string;
  indexKey?: string;
  isMultiKey?: boolean;
  indexBounds?: string[];
  innerScanLoops?: number;
}
export interface PgPlan {
  Plan: PlanNode;
  'Execution Time'?: number;
}

const STAGES: Record<string, string> = {
  Limit: 'LIMIT',
  Sort: 'SORT',
  'Incremental Sort': 'SORT',
  Aggregate: 'GROUP',
  Append: 'OR',
  'Merge Append': 'SORT_MERGE',
  BitmapOr: 'OR',
  BitmapAnd: 'AND_SORTED',
};
const INDEX_SCANS = new Set(['Index Scan', 'Index Only Scan', 'Bitmap Index Scan']);

export function planTree(node: PlanNode, detail?: IndexDetail): Document {
  const type = node['Node Type'];
  const known = node.IndexDetails?.[0] ?? detail;
  if (type === 'Seq Scan') return { stage: 'COLLSCAN', direction: 'forward' };
  if (INDEX_SCANS.has(type)) return indexScan(node, known);
  const inputs = (node.Plans ?? []).map((child) => planTree(child, known));
  const stage = STAGES[type];
  if (!stage && inputs.length === 1) return inputs[0]!; // wrappers of the extension and projections
  if (!stage && inputs.length === 0) return { stage: 'EOF' };
  return { stage: stage ?? type.toUpperCase().replaceAll(' ', '_'), ...inputsOf(inputs) };
}

function inputsOf(inputs: Document[]): Document {
  return inputs.length === 1 ? { inputStage: inputs[0] } : { inputStages: inputs };
}

function indexScan(node: PlanNode, detail?: IndexDetail): Document {
  if (isWholeCollection(node)) return { stage: 'COLLSCAN', direction: 'forward' };
  const scan = {
    stage: 'IXSCAN',
    indexName: detail?.indexName ?? node['Index Name'],
    ...(detail?.indexKey ? { keyPattern: JSON.parse(detail.indexKey) as Document } : {}),
    ...(detail?.isMultiKey === undefined ? {} : { isMultiKey: detail.isMultiKey }),
    ...(detail?.indexBounds ? { indexBounds: detail.indexBounds } : {}),
    direction: node['Scan Direction'] === 'Backward' ? 'backward' : 'forward',
  };
  return { stage: 'FETCH', inputStage: scan };
}

function isWholeCollection(node: PlanNode): boolean {
  const condition = node['Index Cond'] ?? '';
  return condition.includes('shard_key_value') && !condition.includes('object_id');
}

export function executionStats({ Plan, 'Execution Time': time }: PgPlan): Document {
  const examined = { keys: 0, documents: 0 };
  count(Plan, examined);
  return {
    executionSuccess: true,
    nReturned: rows(Plan),
    executionTimeMillis: Math.round(time ?? 0),
    totalKeysExamined: examined.keys,
    totalDocsExamined: examined.documents,
  };
}

const rows = (node: PlanNode): number => Math.round((node['Actual Rows'] ?? 0) * (node['Actual Loops'] ?? 1));

function count(node: PlanNode, examined: { keys: number; documents: number }): void {
  const type = node['Node Type'];
  const loops = node['Actual Loops'] ?? 1;
  const removed = ((node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)) * loops;
  const readsDocuments = type === 'Seq Scan' || type === 'Bitmap Heap Scan' || type === 'Index Scan';
  if (readsDocuments) examined.documents += rows(node) + removed;
  if (INDEX_SCANS.has(type) && !isWholeCollection(node)) {
    examined.keys += rows(node) + (type === 'Bitmap Index Scan' ? 0 : removed);
  }
  for (const child of node.Plans ?? []) count(child, examined);
}
