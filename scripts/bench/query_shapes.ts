// What a planner sees of a command: collection, fields and operators of the filter, sort, hint, stages. Two commands of one
// shape differ in values only. Pure.
import type { Command } from './query_plans.js';

/** A command has one shape, a bulk write one for each kind of statement in it. */
export function shapesOf(name: string, command: Command): string[] {
  const shape = (filter: unknown, more: Command = {}): string =>
    [name, String(command[name]), filterShape(filter), ...Object.entries(more).map(asText)].join(' ').trimEnd();
  switch (name) {
    case 'update':
    case 'delete':
      return [...new Set((command[`${name}s`] as Command[]).map(({ q, hint }) => shape(q, { hint })))];
    case 'findAndModify':
      return [shape(command['query'], { sort: command['sort'] as unknown, hint: command['hint'] as unknown })];
    case 'aggregate':
      return [`aggregate ${String(command[name])} ${pipelineShape(command['pipeline'] as Command[])}`];
    default: {
      const { filter, sort, hint } = command;
      return [shape(filter ?? command['query'], { sort: sort as unknown, hint: hint as unknown })];
    }
  }
}

function asText([name, value]: [string, unknown]): string {
  return value === undefined ? '' : `${name}:${JSON.stringify(value)}`;
}

function pipelineShape(stages: readonly Command[]): string {
  const one = (stage: Command): string => {
    const [name, value] = Object.entries(stage)[0]! as [string, unknown];
    if (name === '$match') return filterShape(value);
    if (name === '$sort') return `$sort:${JSON.stringify(value)}`;
    if (name === '$unionWith') return `$unionWith(${pipelineShape((value as { pipeline: Command[] }).pipeline)})`;
    return name;
  };
  return `[${stages.map(one).join(' ')}]`;
}

function filterShape(filter: unknown): string {
  const fields = Object.entries((filter ?? {}) as object).map(
    ([name, value]) => `${name}${conditionShape(name, value)}`,
  );
  return `{${fields.sort().join(' ')}}`;
}

function conditionShape(name: string, value: unknown): string {
  if (name === '$or' || name === '$and') return `(${(value as unknown[]).map(filterShape).join(' ')})`;
  if (typeof value !== 'object' || value === null || Object.getPrototypeOf(value) !== Object.prototype) return '=';
  const operators = Object.keys(value);
  if (!operators.every((operator) => operator.startsWith('$'))) return '=';
  return operators.map((operator) => (operator === '$eq' ? '=' : operator)).join('');
}
