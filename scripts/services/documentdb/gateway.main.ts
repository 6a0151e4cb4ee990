// The gateway as a process: `gateway.main.ts --port 27017 --pg-port 9712`. Prints `listening <port>` when ready, ends
// cleanly on SIGTERM and SIGINT.
import { parseArgs } from 'node:util';
import { startGateway } from './gateway.js';

const { values } = parseArgs({
  options: {
    port: { type: 'string', default: '27017' },
    'pg-port': { type: 'string', default: '9712' },
    set: { type: 'string', default: 'rs0' },
  },
});

const gateway = await startGateway({ port: Number(values.port), pgPort: Number(values['pg-port']), set: values.set });
console.log(`listening ${gateway.port}`);

for (const signal of ['SIGTERM', 'SIGINT'] as const) {
  process.once(signal, () => {
    void gateway.close().finally(() => process.exit(0));
  });
}
