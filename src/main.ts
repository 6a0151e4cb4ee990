/**
 * One pod of the sample. Environment: `MONGO_URI`, `KAFKA_BROKERS`, `KAFKA_TARGET_TOPICS`, `QUEUE_REDIS_URL` (wakes the
 * other pods; may be missing), `JOBS_HINTS`, `JOBS_WORKERS`, `ADMIN_TOKENS`, `HOST`, `PORT` (0: any free one). Prints `listening <port>` once requests are answered; ends in order on SIGTERM, with exit code 0.
 */
import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { AppModule } from './app.module.js';
import { setUpHttp } from './examples/delivery_order/http.setup.js';
import { endOnSignals } from './index.js';

const app = await NestFactory.create(AppModule);
setUpHttp(app);
endOnSignals(app);
await app.listen(Number(process.env['PORT'] ?? 3000), process.env['HOST'] ?? '127.0.0.1');
const server = app.getHttpServer() as Server;
process.stdout.write(`listening ${(server.address() as AddressInfo).port}\n`);
