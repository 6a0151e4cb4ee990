/**
 * The admin API over HTTP. Import it where the routes are wanted; it runs without the lanes, so an API-only process
 * works. Guards come from `JobsModule.forRoot({ admin: { guards } })`; without one every route answers 403.
 */
import { Module } from '@nestjs/common';
import { BlockedKeys } from './blocked_keys.service.js';
import { AuditController, PartitionsController, WorkersController } from './engine_state.controller.js';
import { EngineState } from './engine_state.service.js';
import { JobsController } from './jobs.controller.js';
import { JobsAdminService } from './jobs_admin.service.js';
import { JobsBulkController } from './jobs_bulk.controller.js';
import { JobsBulkService } from './jobs_bulk.service.js';
import { JobsOverviewController } from './jobs_overview.controller.js';
import { JobsReader } from './jobs_reader.service.js';
import { TargetStates } from './target_states.service.js';
import { TargetsController } from './targets.controller.js';

@Module({
  // Fixed paths before `/jobs/:id`: routes are matched in this order.
  controllers: [
    JobsBulkController,
    JobsOverviewController,
    JobsController,
    TargetsController,
    PartitionsController,
    WorkersController,
    AuditController,
  ],
  providers: [JobsReader, JobsAdminService, JobsBulkService, BlockedKeys, TargetStates, EngineState],
})
export class JobsAdminModule {}
