// Runs librdkafka's mock broker inside a kcat process. It keeps everything in memory, chooses its own port and creates
// any topic that is asked for: enough to deliver to, not enough to show a broker's refusals.
import { LOOPBACK } from '../loopback.port.js';
import { launch } from '../process.launch.js';

const START_MS = 10_000;

export async function runMockBroker(command: string, logFile: string, leashed: boolean) {
  const { pid, ready } = await launch({
    command,
    // A consumer of a topic that nobody writes to keeps the process, and with it the broker, alive.
    args: ['-b', 'x', '-X', 'test.mock.num.brokers=1', '-C', '-t', 'hold', '-q'],
    logFile,
    ready: /replaced with 127\.0\.0\.1:(\d+)/,
    deadlineMs: START_MS,
    leashed,
  });
  return { brokers: `${LOOPBACK}:${ready[1]}`, pid };
}
