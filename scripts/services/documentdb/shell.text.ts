// Promises: a value as MongoDB's messages show it: { key: "text", at: new Date(0), id: ObjectId('…') }.
// Must never throw: it is used in error messages.
interface Tagged {
  _bsontype?: string;
  toString(): string;
}

export function shellText(value: unknown): string {
  if (value === null || value === undefined) return 'null';
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value !== 'object') return String(value as number | bigint | boolean);
  if (value instanceof Date) return `new Date(${value.getTime()})`;
  if (Array.isArray(value)) return value.length ? `[ ${value.map(shellText).join(', ')} ]` : '[]';
  const { _bsontype: tag } = value as Tagged;
  if (tag === 'ObjectId') return `ObjectId('${(value as Tagged).toString()}')`;
  if (tag === 'Long') return (value as Tagged).toString();
  if (tag) return JSON.stringify(value);
  const fields = Object.entries(value).map(([name, inner]) => `${name}: ${shellText(inner)}`);
  return fields.length ? `{ ${fields.join(', ')} }` : '{}';
}
